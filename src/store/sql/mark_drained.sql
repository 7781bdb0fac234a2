-- :namespace_id int, :id bigint, :now timestamptz
--
-- Records that a deleted subscription has no open pushes left.
UPDATE waybill.subscriptions SET drained_at = coalesce(:now, now()) WHERE namespace_id = :namespace_id AND id = :id
