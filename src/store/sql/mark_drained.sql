-- :id bigint, :now timestamptz
--
-- Records that no push of a deleted subscription is open any more.
UPDATE waybill.subscriptions SET drained_at = coalesce(:now, now()) WHERE id = :id
