DROP FUNCTION waybill.count_traced();
