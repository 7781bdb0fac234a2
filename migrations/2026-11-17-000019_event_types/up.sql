-- WHY: a team declares what it sends. A type may have a schema, which the payloads of its events must satisfy; every
-- version of it is kept for a while, so that one can see what an older event was checked against.
--
-- What is declared belongs to the catalog of subscriptions: a change gives the catalog another generation, and a publish
-- that was checked against what was declared before stores nothing. Servers of the version before go on without checks.
CREATE TABLE waybill.event_types (
    namespace_id  integer     NOT NULL,
    id            bigint      NOT NULL DEFAULT nextval('waybill.ids'),
    name          text        NOT NULL COLLATE "C",
    description   text,
    schema        json,                             -- null: any payload is accepted
    schema_digest text,                             -- of the text of the schema: servers keep what they have compiled
    examples      json        NOT NULL,
    version       integer     NOT NULL DEFAULT 1,   -- grows with every change of the schema
    revision      integer     NOT NULL DEFAULT 1,   -- grows with every change
    created_at    timestamptz NOT NULL,
    updated_at    timestamptz NOT NULL,
    PRIMARY KEY (namespace_id, name),
    CONSTRAINT event_types_name_is_short CHECK (length(name) BETWEEN 1 AND 255),
    CONSTRAINT event_types_schema_has_a_digest CHECK ((schema IS NULL) = (schema_digest IS NULL)),
    CONSTRAINT event_types_versions_count CHECK (version BETWEEN 1 AND revision)
);

CREATE TABLE waybill.event_type_versions (
    namespace_id integer     NOT NULL,
    name         text        NOT NULL COLLATE "C",
    version      integer     NOT NULL,
    schema       json,
    created_at   timestamptz NOT NULL,
    PRIMARY KEY (namespace_id, name, version),
    FOREIGN KEY (namespace_id, name) REFERENCES waybill.event_types (namespace_id, name) ON DELETE CASCADE
);
