-- Returns the id of a subscription that is to be stored.
SELECT nextval('waybill.ids') AS id
