-- The subscriptions that get any of it, $20 in version $21. They stay as they are until we have
-- committed: whoever changes one of them now waits, and whoever has just done so makes us store
-- nothing and match anew.
held AS MATERIALIZED (
    SELECT s.id
    FROM unnest($20, $21) AS m(id, version)
    CROSS JOIN LATERAL (
        SELECT id FROM waybill.subscriptions WHERE id = m.id AND version = m.version AND is_active FOR SHARE
    ) s
),
