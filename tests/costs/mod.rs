//! What the hot statements cost, in quantities that can be counted: buffers, WAL, statements. The
//! costs must be the same whatever else waits and whatever the planner's statistics say.
//!
//! The statements are the server's own, prepared on a connection set up like the server's.

mod audit;
mod claims;
mod connections;
mod dead_letters;
mod event_page;
mod event_types;
mod held_snapshot;
mod keys;
mod limits;
mod lists;
mod lives;
mod metrics;
mod pages;
mod pages_push;
mod plans;
mod pushes;
mod statements;
mod stats;
mod tenants;
mod trails;

use diesel::sql_types::{BigInt, Json, Nullable};
use diesel::{QueryableByName, sql_query};
use diesel_async::{AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};
use serde_json::Value;
use waybill::engine::waiting::low_water_marks::QueuePosition;
use waybill::store::connection::connect::connect;
use waybill::store::connection::database::SETUP;
use waybill::store::tables::busy_keys::FIND_BUSY_KEYS;
use waybill::store::tables::claims::CLAIM_DELIVERIES;
use waybill::store::tables::completions::COMPLETE_DELIVERIES;
use waybill::store::tables::dead_letters::INSERT_DEAD_LETTERS;
use waybill::store::tables::deliveries::{LOAD_DELIVERIES, SAVE_DELIVERIES};
use waybill::store::tables::events::{PUBLISH_AND_FAN_OUT, PUBLISH_EVENTS, PUBLISH_KEYED_EVENTS};
use waybill::store::tables::lease_watch::{TAKE_WATCHED_LEASES, WATCH_UNWATCHED_LEASES};
use waybill::store::tables::overdue::{LOCK_DUE, LOCK_EXPIRED, LOCK_EXPIRED_LEASES};
use waybill::store::tables::queue_claims::CLAIM_DELIVERIES_FROM_QUEUE;
use waybill::store::tables::roll_ups::ROLL_UP;

/// A payload of 120 bytes.
const PAYLOAD: &str = r#"{"data":"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"}"#;

/// Returns each statement's name, its text, and the types of its parameters.
fn statements() -> Vec<(&'static str, &'static str, String)> {
    let files = [
        ("publish", PUBLISH_EVENTS),
        ("fan_out", PUBLISH_AND_FAN_OUT),
        ("new_keys", PUBLISH_KEYED_EVENTS),
        ("claim", CLAIM_DELIVERIES_FROM_QUEUE),
        ("claim_of_groups", CLAIM_DELIVERIES),
        ("complete", COMPLETE_DELIVERIES),
        ("load", LOAD_DELIVERIES),
        ("save", SAVE_DELIVERIES),
        ("give_up", INSERT_DEAD_LETTERS),
        ("roll_up", ROLL_UP),
        ("busy_keys", FIND_BUSY_KEYS),
        ("unwatched", WATCH_UNWATCHED_LEASES),
        ("watched", TAKE_WATCHED_LEASES),
        ("due", LOCK_DUE),
        ("expired", LOCK_EXPIRED),
        ("lost", LOCK_EXPIRED_LEASES),
    ];
    files.map(|(name, statement)| (name, statement.sql, statement.types())).into_iter().collect()
}

/// A connection like one of the server's, with the hot statements prepared.
struct Lab {
    conn: AsyncPgConnection,
}

#[derive(QueryableByName)]
struct Plan {
    #[diesel(sql_type = Json, column_name = "QUERY PLAN")]
    plan: Value,
}

#[derive(Debug, Clone, QueryableByName)]
struct Claimed {
    #[diesel(sql_type = Nullable<BigInt>)]
    claimed_id: Option<i64>,
    #[diesel(sql_type = Nullable<BigInt>)]
    lease_id: Option<i64>,
}

impl Lab {
    async fn open(url: &str) -> Self {
        let mut lab = Lab { conn: connect(url, SETUP).await.expect("the database answers") };
        // The catalog generation that the calls below use.
        Lab::execute(&mut lab, "UPDATE waybill.subscription_catalog SET generation = 0").await;
        lab.prepare().await;
        lab
    }

    /// Prepares the statements again, so that they are planned again.
    async fn prepare(&mut self) {
        let mut text = String::from("DEALLOCATE ALL;");
        for (name, sql, types) in statements() {
            text.push_str(&format!("PREPARE {name}({types}) AS {};", without_comments(sql)));
        }
        self.execute(&text).await;
    }

    async fn execute(&mut self, sql: &str) {
        self.conn.batch_execute(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    }

    /// Publishes `count` events with these tags.
    async fn publish(&mut self, count: usize, tags: &str) {
        self.execute(&publish(count, tags)).await;
    }

    /// Claims up to `count` events of a tag.
    async fn claim(&mut self, count: usize, tag: &str) -> Vec<Claimed> {
        sql_query(claim(count, tag)).load(&mut self.conn).await.expect("a claim")
    }

    /// Runs a statement and returns its plan with the actual costs.
    async fn explain(&mut self, call: &str) -> Value {
        self.explained("EXPLAIN (ANALYZE, BUFFERS, WAL, FORMAT JSON)", call).await
    }

    /// Returns the plan of a statement without running it.
    async fn plan(&mut self, call: &str) -> Value {
        self.explained("EXPLAIN (FORMAT JSON)", call).await
    }

    async fn explained(&mut self, how: &str, call: &str) -> Value {
        let explained: Plan = sql_query(format!("{how} {call}")).get_result(&mut self.conn).await.expect(call);
        explained.plan[0]["Plan"].clone()
    }
}

fn without_comments(sql: &str) -> String {
    sql.lines().filter(|line| !line.trim_start().starts_with("--")).collect::<Vec<_>>().join("\n")
}

fn array(value: &str, count: usize) -> String {
    format!("'{{{}}}'", vec![value; count].join(","))
}

fn publish(count: usize, tags: &str) -> String {
    format!("EXECUTE publish({})", events(count, tags))
}

/// Publishes to two subscriptions.
fn fan_out(count: usize, tags: &str) -> String {
    let pushes = |value: &str| array(value, count * 2);
    let events = events(count, tags);
    let (two, one) = (array("2", count), pushes("1"));
    format!(
        "EXECUTE fan_out({events}, '{{1,1}}', '{{1,2}}', '{{1,1}}', {two}, {one}, {one}, {}, NULL, NULL, NULL, {}, NULL, NULL, NULL, NULL)",
        pushes("4"),
        array("1", count)
    )
}

/// Publishes events that workers wait for.
fn hand_over(count: usize, tags: &str) -> String {
    format!(
        "EXECUTE fan_out({}, '{{}}', '{{}}', '{{}}', {}, '{{}}', '{{}}', '{{}}', NULL, {}, {}, {}, NULL, NULL, NULL, NULL)",
        events(count, tags),
        array("0", count),
        array("host:1", count),
        array("300", count),
        array("1", count)
    )
}

/// Publishes events with idempotency keys.
fn keyed(count: usize, tags: &str) -> String {
    let keys: Vec<String> = (0..count).map(|n| format!("key-{n}")).collect();
    format!(
        "EXECUTE fan_out({}, '{{}}', '{{}}', '{{}}', {}, '{{}}', '{{}}', '{{}}', NULL, NULL, NULL, {}, {}, '{{{}}}', {}, {})",
        events(count, tags),
        array("0", count),
        array("1", count),
        array("0", count),
        keys.join(","),
        array("abc", count),
        array("86400", count)
    )
}

/// Publishes events with idempotency keys that are new.
fn new_keys(count: usize, tags: &str) -> String {
    let keys: Vec<String> = (0..count).map(|n| format!("new-{n}")).collect();
    format!(
        "EXECUTE new_keys({}, {}, '{{{}}}', {}, {})",
        events(count, tags),
        array("0", count),
        keys.join(","),
        array("abc", count),
        array("86400", count)
    )
}

fn events(count: usize, tags: &str) -> String {
    let nulls = array("NULL", count);
    let payloads = array(&format!("\"{}\"", PAYLOAD.replace('"', "\\\"")), count);
    format!(
        "NULL, '{{1}}', '{{0}}', {}, {}, {nulls}, {nulls}, {}, {nulls}, {payloads}, {}, {}, {nulls}, {nulls}, {nulls}, \
         {nulls}, {nulls}, {nulls}, {nulls}, NULL, NULL, NULL",
        array("1", count),
        array("a job", count),
        array(&format!("\"{tags}\""), count),
        array("0", count),
        array("3", count)
    )
}

fn claim(count: usize, tag: &str) -> String {
    claim_from(count, tag, QueuePosition::BEGINNING, "NULL")
}

/// A claim that starts at a low-water mark, at a given time.
fn claim_from(count: usize, tag: &str, QueuePosition { rank, seq }: QueuePosition, now: &str) -> String {
    format!(
        "EXECUTE claim({now}, 1, 't:{tag}', '{rank}', {seq}, {}, {}, {}, 16777216, 4096)",
        count + 3,
        array("host:1", count),
        array("300", count)
    )
}

/// The same claim by the statement that serves several groups and queues.
fn claim_of_groups(count: usize, tag: &str) -> String {
    let QueuePosition { rank, seq } = QueuePosition::BEGINNING;
    format!(
        "EXECUTE claim_of_groups(NULL, '{{{count}}}', '{{0}}', '{{1}}', '{{1}}', '{{t:{tag}}}', '{{{rank}}}', '{{{seq}}}', \
         '{{{}}}', NULL, NULL, NULL, {}, {}, 16777216, 4096)",
        count + 3,
        array("host:1", count),
        array("300", count)
    )
}

fn complete(claimed: &[Claimed]) -> String {
    complete_with(claimed, None)
}

/// A completion by workers whose keys are limited to tags.
fn complete_with(claimed: &[Claimed], tag_patterns: Option<&str>) -> String {
    let of_claimed = |row: &Claimed| Some((row.claimed_id?.to_string(), row.lease_id?.to_string()));
    let (ids, leases): (Vec<String>, Vec<String>) = claimed.iter().filter_map(of_claimed).unzip();
    format!(
        "EXECUTE complete(NULL, {}, '{{{}}}', '{{{}}}', {}, {}, {}, {}, {}, NULL, NULL)",
        array("1", ids.len()),
        ids.join(","),
        leases.join(","),
        array("host:1", ids.len()),
        tag_patterns.map_or_else(|| "NULL".into(), |patterns| array(patterns, ids.len())),
        array("200", ids.len()),
        array("12", ids.len()),
        array("NULL", ids.len())
    )
}

/// Returns the sum of a count over a whole statement. Parts that write and that nothing reads from run after the
/// main plan, and have their own counts; parts that are read from are counted where they are read.
fn total(root: &Value, fields: &[&str]) -> u64 {
    let of = |node: &Value| fields.iter().filter_map(|field| node[field].as_u64()).sum::<u64>();
    let mut nodes = Vec::new();
    all_nodes(root, &mut nodes);
    let is_read = |name: &str| nodes.iter().any(|node| node["CTE Name"] == name);
    let runs_late = |node: &&&Value| {
        let name = node["Subplan Name"].as_str().and_then(|name| name.strip_prefix("CTE "));
        node["Node Type"] == "ModifyTable" && name.is_some_and(|name| !is_read(name))
    };
    of(root) + nodes.iter().filter(runs_late).map(|node| of(node)).sum::<u64>()
}

fn all_nodes<'a>(node: &'a Value, found: &mut Vec<&'a Value>) {
    found.push(node);
    for child in node["Plans"].as_array().into_iter().flatten() {
        all_nodes(child, found);
    }
}

fn buffers(root: &Value) -> u64 {
    total(root, &["Shared Hit Blocks", "Shared Read Blocks"])
}

fn wal_bytes(root: &Value) -> u64 {
    total(root, &["WAL Bytes"])
}

/// Returns the part of a plan with this name.
fn find<'a>(node: &'a Value, name: &str) -> Option<&'a Value> {
    if node["Subplan Name"] == name {
        return Some(node);
    }
    node["Plans"].as_array()?.iter().find_map(|child| find(child, name))
}
