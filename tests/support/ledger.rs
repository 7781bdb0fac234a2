//! Consistency checks over the whole database: replaying the audit log must lead to exactly the
//! stored state, and `ready` must hold exactly what can be claimed.

use std::collections::BTreeMap;

use diesel::sql_types::{Array, BigInt, Bool, Integer, Nullable, Text, Timestamptz};
use diesel::{QueryableByName, sql_query};
use diesel_async::{AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};

use super::{App, database};

#[derive(Debug, QueryableByName)]
struct Line {
    #[diesel(sql_type = BigInt)]
    delivery_id: i64,
    #[diesel(sql_type = Text)]
    action: String,
    #[diesel(sql_type = Nullable<Text>)]
    worker_id: Option<String>,
    #[diesel(sql_type = BigInt)]
    lease_id: i64,
    #[diesel(sql_type = Integer)]
    attempt: i32,
    #[diesel(sql_type = Bool)]
    retries: bool,
}

#[derive(Debug, QueryableByName)]
struct Row {
    #[diesel(sql_type = BigInt)]
    id: i64,
    #[diesel(sql_type = Array<Text>)]
    tags: Vec<String>,
    #[diesel(sql_type = Bool)]
    is_push: bool,
    #[diesel(sql_type = Bool)]
    is_roll_up: bool,
    #[diesel(sql_type = Text)]
    status: String,
    #[diesel(sql_type = Integer)]
    retry_count: i32,
    #[diesel(sql_type = Integer)]
    max_retries: i32,
    #[diesel(sql_type = BigInt)]
    lease_id: i64,
    #[diesel(sql_type = Nullable<Text>)]
    worker_id: Option<String>,
    #[diesel(sql_type = Nullable<BigInt>)]
    settled_lease_id: Option<i64>,
    #[diesel(sql_type = Nullable<Text>)]
    settled_action: Option<String>,
}

#[derive(QueryableByName)]
struct Complaint {
    #[diesel(sql_type = Text)]
    complaint: String,
}

/// The state that the log lines read so far lead to.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Replayed {
    status: &'static str,
    retry_count: i32,
    lease_id: i64,
    worker_id: Option<String>,
    settled: Option<(i64, String)>,
    is_started: bool,
}

/// Compares the whole log with the whole state. No request may be in progress.
pub(crate) async fn check(app: &App) {
    let mut conn = database::connection(&app.url).await;
    conn.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await.expect("a transaction");
    let mut complaints = replay_all(&mut conn).await;
    for query in [
        LEASES_ARE_UNIQUE,
        READY_IS_EXACT,
        READY_OR_WAITING,
        KEYS_IN_ORDER,
        ROLL_UPS_COUNT,
        DEAD_LETTERS_ARE_EXACT,
        TAGS_ARE_LISTED,
        NO_RULE_IS_BROKEN,
    ] {
        let found: Vec<Complaint> = sql_query(query).load(&mut conn).await.expect(query);
        complaints.extend(found.into_iter().map(|row| row.complaint));
    }
    let now = app.server.as_ref().and_then(|server| server.engine().now());
    let watching = sql_query(LEASES_ARE_WATCHED).bind::<Nullable<Timestamptz>, _>(now);
    let unwatched: Vec<Complaint> = watching.load(&mut conn).await.expect(LEASES_ARE_WATCHED);
    complaints.extend(unwatched.into_iter().map(|row| row.complaint));
    assert!(complaints.is_empty(), "{} complaints:\n{}", complaints.len(), complaints.join("\n"));
}

async fn replay_all(conn: &mut AsyncPgConnection) -> Vec<String> {
    let lines: Vec<Line> = sql_query(
        "SELECT coalesce(delivery_id, event_id) AS delivery_id, action, worker_id, lease_id, attempt, next_retry_at IS NOT NULL AS retries \
         FROM waybill.event_log ORDER BY id",
    )
    .load(conn)
    .await
    .expect("the trail");
    let rows: Vec<Row> = sql_query(
        "SELECT d.id, string_to_array(e.tags, ',') AS tags, d.subscription_id IS NOT NULL AS is_push, d.open_deliveries IS NOT NULL AS is_roll_up, d.status, d.retry_count, d.max_retries, d.lease_id, d.worker_id, \
                d.settled_lease_id, d.settled_action \
         FROM waybill.deliveries d JOIN waybill.events e ON e.namespace_id = d.namespace_id AND e.id = d.event_id ORDER BY d.id",
    )
    .load(conn)
    .await
    .expect("the deliveries");
    let mut by_delivery: BTreeMap<i64, Vec<&Line>> = BTreeMap::new();
    for line in &lines {
        by_delivery.entry(line.delivery_id).or_default().push(line);
    }
    // A roll-up row has no log of its own; ROLL_UPS_COUNT checks it.
    let rows = rows.iter().filter(|row| !row.is_roll_up);
    rows.filter_map(|row| disagreement(row, by_delivery.get(&row.id).map_or(&[], Vec::as_slice))).collect()
}

/// Returns how a row differs from the state that its log leads to, or `None` if they agree.
fn disagreement(row: &Row, lines: &[&Line]) -> Option<String> {
    let mut state = Replayed {
        status: if row.tags.is_empty() && !row.is_push { "COMPLETED" } else { "PENDING" },
        retry_count: 0,
        lease_id: 0,
        worker_id: None,
        settled: None,
        is_started: false,
    };
    let mut before = None;
    for line in lines {
        if let Err(why) = state.follow(line, before) {
            return Some(format!("event {}: {why} at {line:?} in {}; before it: {state:?}", row.id, trail(lines)));
        }
        before = Some(line.action.as_str());
    }
    let stored = Replayed {
        status: state.status,
        retry_count: row.retry_count,
        lease_id: row.lease_id,
        worker_id: row.worker_id.clone(),
        settled: row.settled_lease_id.zip(row.settled_action.clone()),
        is_started: state.is_started,
    };
    let agrees = stored == state && row.status == state.status && row.retry_count <= row.max_retries;
    (!agrees).then(|| format!("{row:?} does not follow from {}, which leads to {state:?}", trail(lines)))
}

fn trail(lines: &[&Line]) -> String {
    lines.iter().map(|line| format!("{}#{}", line.action, line.lease_id)).collect::<Vec<_>>().join(" ")
}

impl Replayed {
    /// Applies one line, or returns why it may not follow the lines before it.
    fn follow(&mut self, line: &Line, before: Option<&str>) -> Result<(), &'static str> {
        let is_current_claim = line.lease_id == self.lease_id;
        let is_settled = self.settled.as_ref().is_some_and(|(lease_id, _)| *lease_id == self.lease_id);
        let must = |holds: bool, why| if holds { Ok(()) } else { Err(why) };
        must(line.action == "PICKED" || is_current_claim, "not the current claim")?;
        let is_holders = line.worker_id.is_none() || line.worker_id == self.worker_id;
        must(line.action == "PICKED" || is_holders, "by a worker that does not hold the claim")?;
        match line.action.as_str() {
            "PICKED" => {
                must(self.status == "PENDING", "claimed while not pending")?;
                must(line.lease_id > self.lease_id, "the lease ids do not grow")?;
                must(line.attempt == self.retry_count + 1, "a wrong attempt")?;
                self.status = "PROCESSING";
                self.lease_id = line.lease_id;
                self.worker_id.clone_from(&line.worker_id);
                self.is_started = false;
            }
            "STARTED" => {
                must(self.status == "PROCESSING" && !self.is_started, "started twice, or not claimed")?;
                self.is_started = true;
            }
            "FAILED" if line.worker_id.is_none() => {
                must(self.status == "PENDING" && before == Some("RESET"), "poison without a reset")?;
                self.status = "FAILED";
            }
            "COMPLETED" | "FAILED" => {
                must(self.status == "PROCESSING" || self.status == "PENDING", "settled after it was finished")?;
                must(self.lease_id > 0 && !is_settled, "settled twice, or never claimed")?;
                self.settled = Some((self.lease_id, line.action.clone()));
                let is_failure = line.action == "FAILED";
                self.retry_count += i32::from(is_failure);
                self.status = match (is_failure, line.retries) {
                    (false, _) => "COMPLETED",
                    (true, true) => "PENDING",
                    (true, false) => "FAILED",
                };
            }
            "RELEASED" => {
                must(self.status == "PROCESSING", "released while not held")?;
                self.settled = Some((self.lease_id, line.action.clone()));
                self.status = "PENDING";
            }
            "RESET" => {
                must(self.status == "PROCESSING", "reset while not held")?;
                self.status = "PENDING";
            }
            "DEAD_LETTERED" => {
                must(self.status == "FAILED" || self.status == "PENDING", "dead-lettered while held")?;
                self.status = "FAILED";
            }
            "RETRIED" | "REPLAYED" => {
                must(self.status == "FAILED" || self.status == "CANCELLED", "retried while not finished")?;
                (self.status, self.retry_count) = ("PENDING", 0);
            }
            "CANCELLED" => {
                let ends_a_claim = matches!(before, Some("FAILED" | "RELEASED" | "RESET" | "DEAD_LETTERED"));
                must(self.status == "PENDING" || ends_a_claim, "cancelled while not pending")?;
                self.status = "CANCELLED";
            }
            "EXPIRED" => {
                must(self.status == "PENDING", "expired while not pending")?;
                self.status = "FAILED";
            }
            _ => return Err("an unknown action"),
        }
        Ok(())
    }
}

/// No two claims share a lease.
const LEASES_ARE_UNIQUE: &str = "
    SELECT 'the lease ' || lease_id || ' belongs to ' || count(*) || ' claims' AS complaint
    FROM waybill.event_log WHERE action = 'PICKED' GROUP BY lease_id HAVING count(*) > 1";

/// `ready` holds one row per tag of every ready delivery, and no other row.
const READY_IS_EXACT: &str = "
    WITH wanted AS (
        SELECT d.namespace_id, 't:' || tag AS queue, -d.priority AS rank, d.ready_seq AS seq, d.id
        FROM waybill.deliveries d JOIN waybill.events e ON e.id = d.event_id CROSS JOIN LATERAL unnest(string_to_array(e.tags, ',')) AS tag
        WHERE d.ready_seq IS NOT NULL AND d.subscription_id IS NULL
        UNION ALL
        SELECT namespace_id, 's:' || subscription_id, -priority, ready_seq, id
        FROM waybill.deliveries WHERE ready_seq IS NOT NULL AND subscription_id IS NOT NULL
    ), held AS (
        SELECT namespace_id, queue, rank::integer, seq, delivery_id FROM waybill.ready
    )
    SELECT 'missing in ready: ' || m::text AS complaint FROM (SELECT * FROM wanted EXCEPT ALL SELECT * FROM held) m
    UNION ALL
    SELECT 'too much in ready: ' || m::text FROM (SELECT * FROM held EXCEPT ALL SELECT * FROM wanted) m";

/// `event_tags` holds the second and further tags of every event, and no other row.
const TAGS_ARE_LISTED: &str = "
    WITH wanted AS (
        SELECT e.namespace_id, tag, e.id FROM waybill.events e, unnest((string_to_array(e.tags, ','))[2:]) AS tag
    ), held AS (
        SELECT namespace_id, tag, event_id FROM waybill.event_tags
    )
    SELECT 'missing in event_tags: ' || m::text AS complaint FROM (SELECT * FROM wanted EXCEPT ALL SELECT * FROM held) m
    UNION ALL
    SELECT 'too much in event_tags: ' || m::text FROM (SELECT * FROM held EXCEPT ALL SELECT * FROM wanted) m";

/// The query for operators finds nothing.
const NO_RULE_IS_BROKEN: &str = "
    SELECT 'breaks a rule: ' || b::text AS complaint FROM waybill.find_broken_rules() b";

/// Pending work without an ordering key is either ready or has a due time.
const READY_OR_WAITING: &str = "
    SELECT 'pending, but neither ready nor due: ' || id AS complaint FROM waybill.deliveries
    WHERE status = 'PENDING' AND ordering_key IS NULL AND open_deliveries IS NULL AND (ready_seq IS NULL) = (due_at IS NULL)";

/// Only the head of an ordering key may be ready or in flight. A pending head is either ready or
/// has a due time.
const KEYS_IN_ORDER: &str = "
    SELECT 'key ' || ordering_key || ' out of order: ' || id AS complaint
    FROM (SELECT d.*, row_number() OVER (PARTITION BY namespace_id, ordering_key, subscription_id ORDER BY order_seq) AS place
          FROM waybill.deliveries d WHERE order_seq IS NOT NULL) k
    WHERE (place > 1 AND (ready_seq IS NOT NULL OR status = 'PROCESSING'))
       OR (place = 1 AND status = 'PENDING' AND (ready_seq IS NULL) = (due_at IS NULL))";

/// Every held delivery is in `lease_watch`, to be checked no later than its lease ends, or within
/// ten seconds if its lease has already expired.
const LEASES_ARE_WATCHED: &str = "
    SELECT 'held, but not in lease_watch: ' || id AS complaint FROM waybill.deliveries d
    WHERE status = 'PROCESSING' AND NOT EXISTS (
        SELECT 1 FROM waybill.lease_watch w
        WHERE d.id = ANY (w.delivery_ids)
          AND w.look_at <= CASE WHEN d.lease_expires_at > coalesce($1, now()) THEN d.lease_expires_at
                                ELSE coalesce($1, now()) + interval '10 seconds' END)";

/// The roll-up row of an event that is only pushed counts its deliveries.
const ROLL_UPS_COUNT: &str = "
    SELECT 'roll-up: ' || o.id || ' says ' || o.open_deliveries || ' open, ' || o.failed_deliveries || ' failed, ' || o.status AS complaint
    FROM waybill.deliveries o CROSS JOIN LATERAL (
        SELECT count(*) FILTER (WHERE status IN ('PENDING', 'PROCESSING')) AS open,
               count(*) FILTER (WHERE status = 'FAILED') AS failed
        FROM waybill.deliveries WHERE event_id = o.id AND subscription_id IS NOT NULL) c
    WHERE o.open_deliveries IS NOT NULL
      AND (o.open_deliveries <> c.open OR o.failed_deliveries <> c.failed
           OR o.status::text <> CASE WHEN c.open > 0 THEN 'PENDING' WHEN c.failed > 0 THEN 'FAILED'
                               WHEN o.cancel_requested THEN 'CANCELLED' ELSE 'COMPLETED' END)";

/// Every failed push has an open dead letter, and only failed or cancelled pushes have one.
const DEAD_LETTERS_ARE_EXACT: &str = "
    SELECT 'failed without a dead letter: ' || d.id AS complaint FROM waybill.deliveries d
    WHERE d.subscription_id IS NOT NULL AND d.status = 'FAILED'
      AND NOT EXISTS (SELECT 1 FROM waybill.dead_letters l WHERE l.delivery_id = d.id AND l.replayed_at IS NULL)
    UNION ALL
    SELECT 'an open dead letter of a delivery that is neither failed nor cancelled: ' || l.id FROM waybill.dead_letters l
    JOIN waybill.deliveries d ON d.id = l.delivery_id
    WHERE l.replayed_at IS NULL AND d.status NOT IN ('FAILED', 'CANCELLED')";
