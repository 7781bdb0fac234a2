-- WHY: everything that belongs to somebody has a namespace, so tenants arrive as rows and not as a rewrite.
-- Until then there is one, `default`. Every key, and every index that serves a list or a look-up, begins with
-- the namespace: the rows of one namespace lie together, and a look-up that forgets the namespace is slow
-- enough to be noticed. Only the indexes of background services, which work for all namespaces, do not.
--
-- The schema itself is created before the first migration runs, since the table of applied migrations is in it.
CREATE TABLE waybill.namespaces (
    id         integer     PRIMARY KEY,
    name       text        NOT NULL CONSTRAINT namespaces_name_is_unique UNIQUE,
    created_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT namespaces_name_is_short CHECK (length(name) BETWEEN 1 AND 100)
);

INSERT INTO waybill.namespaces (id, name) VALUES (1, 'default');
