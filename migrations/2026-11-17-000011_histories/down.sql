DROP FUNCTION waybill.begin_history(boolean);
DROP FUNCTION waybill.has_gone_back();
DROP FUNCTION waybill.identify_database();
DROP FUNCTION waybill.random_epoch();
DROP TABLE waybill.histories;
