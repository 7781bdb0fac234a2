-- WHY: a lease was the number of the claim among those of its delivery, so nearly all leases
-- were 1, and a worker that named the wrong event was not caught. A lease is now the `seq` under
-- which the delivery stood in `ready` when it was claimed: no two claims share one, and it grows
-- with every claim of a delivery, since whatever enters `ready` gets a new `seq`. 0 still means
-- never claimed.
--
-- What is claimed now keeps its number, and what is claimed next gets a higher one: each of the
-- claims before has used up a `seq`.
ALTER TABLE waybill.deliveries
    ALTER COLUMN lease_id TYPE bigint,
    ALTER COLUMN settled_lease_id TYPE bigint;
ALTER TABLE waybill.event_log
    ALTER COLUMN lease_id TYPE bigint;
ALTER TABLE waybill.claim_requests
    ALTER COLUMN lease_ids TYPE bigint[];
