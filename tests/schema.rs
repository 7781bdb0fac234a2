//! `src/store/tables/schema.rs` is written by hand: every table, key and column of it is compared with the
//! migrated database, in both directions.

use std::collections::{BTreeMap, BTreeSet};

use diesel_async::RunQueryDsl;

use crate::support::database;

/// The type of each `table.column`, and the columns of each `table (key)`.
type Facts = BTreeMap<String, String>;

fn facts_of_the_code() -> Facts {
    let mut facts = Facts::new();
    let mut table = "";
    let tables = [include_str!("../src/store/tables/schema.rs"), include_str!("../src/store/tables/event_columns.rs")];
    for line in tables.iter().flat_map(|text| text.lines()).map(str::trim) {
        if let Some(head) = line.strip_prefix("waybill.") {
            let (name, key) = head.split_once(" (").expect("a table and its key");
            table = name;
            facts.insert(format!("{table} (key)"), key.trim_end_matches(") {").to_owned());
        } else if let Some((column, kind)) = line.split_once(" -> ").filter(|_| line.ends_with(',')) {
            facts.insert(format!("{table}.{column}"), kind.trim_end_matches(',').to_owned());
        }
    }
    facts
}

/// Partitions are separate tables only to PostgreSQL, and the table of applied migrations belongs
/// to the migration tool.
const COLUMNS: &str = "SELECT c.relname || '.' || a.attname AS name, \
        format_type(a.atttypid, a.atttypmod) || CASE WHEN a.attnotnull THEN '' ELSE ' null' END AS fact \
     FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped \
     WHERE c.relnamespace = 'waybill'::regnamespace AND c.relkind IN ('r', 'p', 'm') \
       AND NOT c.relispartition AND c.relname <> '__diesel_schema_migrations' \
     UNION ALL \
     SELECT c.relname || ' (key)', (SELECT string_agg(a.attname, ', ' ORDER BY k.place) \
        FROM unnest(i.indkey) WITH ORDINALITY AS k(attnum, place) \
        JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.attnum) \
     FROM pg_class c JOIN pg_index i ON i.indrelid = c.oid AND i.indisprimary \
     WHERE c.relnamespace = 'waybill'::regnamespace AND NOT c.relispartition \
       AND c.relname <> '__diesel_schema_migrations'";

async fn facts_of_the_database() -> Facts {
    #[derive(diesel::QueryableByName)]
    struct Row {
        #[diesel(sql_type = diesel::sql_types::Text)]
        name: String,
        #[diesel(sql_type = diesel::sql_types::Text)]
        fact: String,
    }
    let url = database::migrated().await;
    let rows: Vec<Row> = diesel::sql_query(COLUMNS).load(&mut database::connection(&url).await).await.expect("rows");
    let facts = rows.into_iter().map(|row| {
        let fact = if row.name.contains('.') { diesel_type(&row.fact) } else { row.fact };
        (row.name, fact)
    });
    facts.collect()
}

fn diesel_type(column: &str) -> String {
    if let Some(inner) = column.strip_suffix(" null") {
        return format!("Nullable<{}>", diesel_type(inner));
    }
    if let Some(element) = column.strip_suffix("[]") {
        return format!("Array<{}>", diesel_type(element));
    }
    let word = match column {
        "bigint" => "BigInt",
        "integer" => "Integer",
        "smallint" => "SmallInt",
        "boolean" => "Bool",
        "double precision" => "Double",
        "real" => "Float",
        // An enum is read and written as text.
        "text" | "status" | "action" => "Text",
        "json" => "Json",
        "bytea" => "Binary",
        "timestamp with time zone" => "Timestamptz",
        other => other,
    };
    word.to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_schema_in_the_code_is_the_schema_in_the_database() {
    let (mut code, database) = (facts_of_the_code(), facts_of_the_database().await);
    // Diesel wants a key for every table. The event log has none in the database.
    assert!(code.remove("event_log (key)").is_some());
    assert!(code.len() > 50, "the parser has found only {code:?}");
    let only_in = |one: &Facts, other: &Facts| -> Vec<String> {
        one.iter().filter(|(name, fact)| other.get(*name) != Some(*fact)).map(|(n, f)| format!("{n} {f}")).collect()
    };
    assert_eq!(only_in(&code, &database), [""; 0], "in schema.rs and not in the database");
    assert_eq!(only_in(&database, &code), [""; 0], "in the database and not in schema.rs");
}

/// The indexes that do not begin with the namespace although their table has one, each with the reason.
const INDEXES_OF_ALL_NAMESPACES: [(&str, &str); 19] = [
    ("deliveries_by_due_time", "the promoter wakes what is due, of all namespaces"),
    ("deliveries_by_expiry", "the expirer cancels what has expired, of all namespaces"),
    ("lease_watch_pkey", "the lease reaper takes the leases that end next, of all namespaces"),
    ("operations_running", "the operation runner takes the steps that are due, of all namespaces"),
    ("event_log_blocks", "a range of blocks has lines of all namespaces"),
    ("claim_requests_by_age", "the removal of old rows"),
    ("workers_by_last_seen", "the removal of old rows"),
    ("endpoints_by_age", "the removal of old rows"),
    ("dead_letters_by_age", "the removal of old rows"),
    ("operations_by_age", "the removal of old rows"),
    ("api_keys_by_age", "the removal of old rows"),
    ("api_key_secrets_by_age", "the removal of old rows"),
    ("audit_log_by_age", "the removal of old rows"),
    ("idempotency_keys_by_end", "the removal of old rows"),
    ("stats_minutes_by_age", "the removal of old rows"),
    ("stats_hours_by_age", "the removal of old rows"),
    ("refused_settlements_by_age", "the removal of old rows"),
    ("api_key_secrets_pkey", "a key is looked up by its hash, which tells the namespace"),
    ("sources_token_is_unique", "a source is looked up by its token, which tells the namespace"),
];

/// The rows of a tenant lie together, and no look-up by an id finds those of another tenant.
#[tokio::test(flavor = "multi_thread")]
async fn every_index_begins_with_the_namespace() {
    #[derive(diesel::QueryableByName)]
    struct Row {
        #[diesel(sql_type = diesel::sql_types::Text)]
        name: String,
    }
    let others = "SELECT x.relname::text AS name FROM pg_index i JOIN pg_class x ON x.oid = i.indexrelid \
         JOIN pg_class t ON t.oid = i.indrelid \
         JOIN pg_attribute n ON n.attrelid = t.oid AND n.attname = 'namespace_id' \
         WHERE t.relnamespace = 'waybill'::regnamespace AND NOT t.relispartition AND i.indkey[0] <> n.attnum";
    let url = database::migrated().await;
    let rows: Vec<Row> = diesel::sql_query(others).load(&mut database::connection(&url).await).await.expect("rows");
    let found: BTreeSet<String> = rows.into_iter().map(|row| row.name).collect();
    let known = INDEXES_OF_ALL_NAMESPACES.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(found, known, "indexes that do not begin with the namespace, and the known ones");
}
