-- Numbers that do not fit are cut down to one that leaves room to count on from there.
DELETE FROM waybill.claim_requests WHERE 2147483647 < ANY (lease_ids);
ALTER TABLE waybill.claim_requests
    ALTER COLUMN lease_ids TYPE integer[];
ALTER TABLE waybill.event_log
    ALTER COLUMN lease_id TYPE integer USING least(lease_id, 2147000000);
ALTER TABLE waybill.deliveries
    ALTER COLUMN settled_lease_id TYPE integer
        USING CASE WHEN settled_lease_id IS NOT NULL THEN least(settled_lease_id, 2147000000) END,
    ALTER COLUMN lease_id TYPE integer USING least(lease_id, 2147000000);
