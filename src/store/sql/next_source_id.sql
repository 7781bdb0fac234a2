-- Returns the id of a source that is to be stored.
SELECT nextval('waybill.ids') AS id
