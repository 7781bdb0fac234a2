DROP TABLE waybill.claim_requests;
