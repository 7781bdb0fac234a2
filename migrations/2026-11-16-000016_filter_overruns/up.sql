-- WHY: a filter that would have to look at more of an event than it may counts as not matching,
-- and its owner must be able to see that. The counts stand in a table of their own: the row of a
-- subscription is locked by everybody who publishes something for it.
CREATE TABLE waybill.filter_overruns (
    subscription_id bigint      PRIMARY KEY,
    events          bigint      NOT NULL, -- for how many events it did
    last_at         timestamptz NOT NULL, -- when the latest of them was published
    last_event_id   bigint      NOT NULL,
    CONSTRAINT filter_overruns_count_events CHECK (events > 0)
) WITH (fillfactor = 50);
