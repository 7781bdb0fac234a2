-- Returns the present generation of the catalog of sources.
SELECT generation FROM waybill.source_catalog
