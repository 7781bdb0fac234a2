DROP TABLE waybill.workers;
DROP TABLE waybill.claim_requests;
DROP TABLE waybill.lease_watch;
DROP SEQUENCE waybill.lease_watch_ids;
