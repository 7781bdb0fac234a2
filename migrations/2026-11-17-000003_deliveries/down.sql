DROP TABLE waybill.deliveries;
DROP FUNCTION waybill.roll_up_status(integer, integer, boolean);
DROP TYPE waybill.action;
DROP TYPE waybill.status;
