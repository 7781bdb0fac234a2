-- WHY: everything that belongs to somebody carries a namespace from the first day, so that
-- tenants can arrive later as rows and not as a rewrite. Until then there is one, `default`.
-- The schema itself is created before the first migration runs (the table that remembers
-- which migrations ran lives in it too).
CREATE TABLE waybill.namespaces (
    id         integer     PRIMARY KEY,
    name       text        NOT NULL CONSTRAINT namespaces_name_is_unique UNIQUE,
    created_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT namespaces_name_is_short CHECK (length(name) BETWEEN 1 AND 100)
);

INSERT INTO waybill.namespaces (id, name) VALUES (1, 'default');
