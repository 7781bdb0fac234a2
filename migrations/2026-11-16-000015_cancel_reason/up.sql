-- WHY: work that somebody holds is not cancelled at once, only marked, and its CANCELLED line is
-- written when its worker lets go of it. The reason that was given with the cancel is kept here
-- until then.
ALTER TABLE waybill.deliveries ADD COLUMN cancel_reason text;
