-- WHY: what a later release may do to tables while servers of this release run (`tests/migrations/upgrade.rs`).
ALTER TABLE waybill.deliveries ADD COLUMN added_later integer NOT NULL DEFAULT 0;
ALTER TABLE waybill.event_log ADD COLUMN added_later text;
ALTER TABLE waybill.ready ADD COLUMN added_later text;
