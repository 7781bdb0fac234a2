DROP TABLE waybill.filter_overruns;
DROP TABLE waybill.subscription_rates;
DROP TABLE waybill.endpoints;
DROP TABLE waybill.subscription_secrets;
DROP TABLE waybill.subscription_catalog;
DROP FUNCTION waybill.random_generation();
DROP TABLE waybill.subscriptions;
