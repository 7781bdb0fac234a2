SELECT waybill.enforce_rules(false);
DROP FUNCTION waybill.enforce_rules(boolean);
DROP FUNCTION waybill.refuse_broken_rules();
DROP FUNCTION waybill.find_broken_rules();
DROP FUNCTION waybill.rule_broken_by_delivery(waybill.deliveries);
DROP FUNCTION waybill.rule_broken_by_event(waybill.events);
