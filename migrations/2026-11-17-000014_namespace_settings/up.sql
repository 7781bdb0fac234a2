-- WHY: namespaces become tenants. What an administrator sets for one, such as what it may use and for how long its
-- events are kept, is one document, written as a whole and validated by the program. Servers of the version before go on
-- in the namespace `default`, whose settings are empty.
ALTER TABLE waybill.namespaces ADD COLUMN settings json NOT NULL DEFAULT '{}';

-- The leases of one namespace, for its lists of workers and of held events: those of a busy neighbour must not be read
-- along. The table is small, whatever is in the others.
CREATE INDEX lease_watch_of_namespace ON waybill.lease_watch (namespace_id, look_at, id);
