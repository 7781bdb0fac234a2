-- WHY: an event is a fact. It is written once and never changed; whatever happens to it is
-- the business of `deliveries` and `event_log`. `payload` is `json` and not `jsonb`, because
-- what was published must come back byte for byte.
--
-- One sequence numbers events and deliveries alike: the row that holds an event's own state
-- carries the event's id (see deliveries), and no other delivery may ever clash with it.
CREATE SEQUENCE waybill.ids AS bigint;

CREATE TABLE waybill.events (
    id             bigint      PRIMARY KEY DEFAULT nextval('waybill.ids'),
    namespace_id   integer     NOT NULL DEFAULT 1,
    title          text        NOT NULL,
    description    text,
    event_type     text,
    tags           text[]      NOT NULL,
    labels         json,
    payload        json,
    priority       smallint    NOT NULL DEFAULT 0,
    max_retries    integer     NOT NULL DEFAULT 3,
    backoff        json,
    ordering_key   text,
    correlation_id text,
    traceparent    text,
    run_at         timestamptz,
    expires_at     timestamptz,
    created_at     timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT events_have_tags_or_a_type CHECK (cardinality(tags) > 0 OR event_type IS NOT NULL),
    CONSTRAINT events_title_is_short      CHECK (length(title) BETWEEN 1 AND 255),
    CONSTRAINT events_priority_in_range   CHECK (priority BETWEEN -100 AND 100),
    CONSTRAINT events_max_retries_in_range CHECK (max_retries BETWEEN 1 AND 1000)
);

-- Costs nothing for the many events that carry no correlation id.
CREATE INDEX events_by_correlation ON waybill.events (correlation_id, id)
    WHERE correlation_id IS NOT NULL;
