DROP TABLE waybill.subscription_paces;
DROP TABLE waybill.endpoints;
DROP TABLE waybill.subscription_secrets;
DROP TABLE waybill.subscription_catalog;
DROP TABLE waybill.subscriptions;
