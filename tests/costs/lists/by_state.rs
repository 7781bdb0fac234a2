//! What lists of events by their status cost.

use waybill::domain::status::Status;
use waybill::store::lists::events::EventFilter;

use super::many::{MOST_TO_COUNT, Many};
use super::{STATES_IN_USE, any, app, app_on, by_word, finds, finds_within};
use crate::support::database;

/// The same behind tens of thousands of completions of removed events: each would cost four to look up.
const MOST_BEHIND_REMOVED: i64 = 4_000;

/// The same among 12,000 held events with an ordering key: of the table, each page is a buffer, and has two dozen of them.
const MOST_AMONG_HELD: i64 = 1_500;

/// Statements that give the events `{ids}`, five at most, another state. The first is claimed by
/// `holder:1`. Of pending events two are ready, the others wait for their time, for their turn and for pushes.
const STATES: [(Status, &str); 4] = [
    (Status::Failed, "UPDATE waybill.deliveries SET status = 'FAILED', listed_status = 'FAILED' WHERE id = ANY({ids})"),
    (
        Status::Cancelled,
        "UPDATE waybill.deliveries SET status = 'CANCELLED', listed_status = 'CANCELLED' WHERE id = ANY({ids})",
    ),
    (
        Status::Processing,
        "UPDATE waybill.deliveries SET status = 'PROCESSING', lease_expires_at = now() + interval '1 hour', \
                worker_id = CASE id WHEN ({ids})[1] THEN 'holder:1' ELSE 'other:1' END WHERE id = ANY({ids}); \
         INSERT INTO waybill.lease_watch (look_at, delivery_ids) VALUES (now() + interval '1 hour', {ids} || 77), \
                (now() + interval '1 hour', ARRAY[500, 600, 700000, 999999])",
    ),
    (
        Status::Pending,
        "UPDATE waybill.deliveries SET status = 'PENDING', ready_seq = CASE WHEN id IN (({ids})[1], ({ids})[5]) THEN id END, \
                due_at = CASE id WHEN ({ids})[2] THEN now() + interval '1 hour' END, \
                order_seq = CASE id WHEN ({ids})[3] THEN 1 END, ordering_key = CASE id WHEN ({ids})[3] THEN 'k' END, \
                open_deliveries = CASE id WHEN ({ids})[4] THEN 1 END, failed_deliveries = CASE id WHEN ({ids})[4] THEN 0 END, \
                listed_status = CASE id WHEN ({ids})[4] THEN 'PENDING'::waybill.status END WHERE id = ANY({ids}); \
         INSERT INTO waybill.ready (seq, delivery_id, rank, queue) \
             SELECT id, id, 0, queue FROM waybill.deliveries, (VALUES ('t:many'), ('t:other')) q(queue) \
             WHERE namespace_id = 1 AND id = ANY({ids}) AND ready_seq IS NOT NULL",
    ),
];

const COMPLETE_AGAIN: &str = "UPDATE waybill.deliveries SET status = 'COMPLETED', listed_status = NULL, ready_seq = NULL, \
     due_at = NULL, order_seq = NULL, ordering_key = NULL, open_deliveries = NULL, failed_deliveries = NULL, \
     lease_expires_at = NULL, worker_id = 'host:1' \
     WHERE namespace_id = 1 AND (status <> 'COMPLETED' OR worker_id = 'holder:1'); \
     DELETE FROM waybill.ready WHERE namespace_id = 1; DELETE FROM waybill.lease_watch";

/// Returns an SQL expression.
fn array(ids: &[i64]) -> String {
    let ids: Vec<String> = ids.iter().map(i64::to_string).collect();
    format!("'{{{}}}'::bigint[]", ids.join(","))
}

#[tokio::test(flavor = "multi_thread")]
async fn events_are_found_by_each_status_wherever_they_lie_and_however_few() {
    let app = app().await;
    let _states = STATES_IN_USE.lock().await;
    for (place, wanted) in [
        ("first", vec![21, 22, 23, 24, 25]),
        ("last", vec![999_970, 999_971, 999_972, 999_973, 999_974]),
        ("few", vec![500_000]),
        ("none", vec![]),
    ] {
        for (status, statement) in STATES {
            database::execute(&app.url, &statement.replace("{ids}", &array(&wanted))).await;
            let by_status = EventFilter { status: Some(status), ..any() };
            let name = format!("{} {place}", status.as_str());
            finds(&app, &name, 1, &by_status, &wanted).await;
            for (field, filter) in by_word("many").into_iter().filter(|(field, _)| *field != "second tag") {
                let both = EventFilter { status: Some(status), ..filter };
                finds(&app, &format!("{name}, and a common {field}"), 1, &both, &wanted).await;
            }
            for (field, filter) in by_word("first") {
                let both = EventFilter { status: Some(status), ..filter };
                finds(&app, &format!("{name}, and another {field}"), 1, &both, &[]).await;
            }
            if status == Status::Processing {
                for (worker, wanted) in [("holder:1", &wanted[..wanted.len().min(1)]), ("host:7", &[][..])] {
                    let by_worker = EventFilter { worker_id: Some(worker.into()), ..any() };
                    finds(&app, &format!("worker {worker} {place}"), 1, &by_worker, wanted).await;
                }
            }
            database::execute(&app.url, COMPLETE_AGAIN).await;
        }
    }
    database::execute(
        &app.url,
        "UPDATE waybill.deliveries SET status = 'COMPLETED', lease_id = 1, ready_seq = NULL WHERE id IN (2000001, 2100000); \
         UPDATE waybill.deliveries SET status = 'COMPLETED', listed_status = 'COMPLETED', ready_seq = NULL WHERE id = 2200000; \
         DELETE FROM waybill.ready WHERE delivery_id IN (2000001, 2100000, 2200000); \
         INSERT INTO waybill.event_log (namespace_id, event_id, lease_id, attempt, action) \
             VALUES (3, 2000001, 1, 1, 'COMPLETED'), (3, 2100000, 1, 1, 'COMPLETED')",
    )
    .await;
    let completed = EventFilter { status: Some(Status::Completed), ..any() };
    finds(&app, "COMPLETED few", 3, &completed, &[2_000_001, 2_100_000, 2_200_000]).await;
}

/// What is left of events whose completions the log still has: in the first namespace one event before 50,000 that were
/// removed, in the third every hundredth of 20,000. None of those was ever completed. Five completed ones come last.
const REMAINS: &str = "
    SELECT waybill.enforce_rules(false);
    INSERT INTO waybill.namespaces (id, name) VALUES (3, 'alternating');
    CREATE TEMP TABLE remains AS
        SELECT 1 AS namespace_id, 100 AS id, 'PENDING'::waybill.status AS status
        UNION ALL SELECT 1, n, 'COMPLETED' FROM generate_series(60001, 60005) n
        UNION ALL SELECT 3, n, 'PENDING' FROM generate_series(100000, 120000, 100) n
        UNION ALL SELECT 3, n, 'COMPLETED' FROM generate_series(130001, 130005) n;
    INSERT INTO waybill.events (namespace_id, id, title, tags) SELECT namespace_id, id, 'a job', 'email' FROM remains;
    INSERT INTO waybill.deliveries (namespace_id, id, event_id, status, priority, max_retries, lease_id, ready_seq)
        SELECT namespace_id, id, id, status, 0, 3, 1, CASE status WHEN 'PENDING' THEN id END FROM remains;
    INSERT INTO waybill.event_log (namespace_id, event_id, lease_id, attempt, action)
        SELECT 1, n, 1, 1, 'COMPLETED'::waybill.action FROM generate_series(101, 50100) n
        UNION ALL SELECT 3, n, 1, 1, 'COMPLETED' FROM generate_series(100000, 120000) n WHERE n % 100 <> 0
        UNION ALL SELECT namespace_id, id, 1, 1, 'COMPLETED' FROM remains WHERE status = 'COMPLETED';
    SELECT setval('waybill.ids', 200000), setval('waybill.ready_seq', 200000);
";

/// The log outlives events. Its completions of removed events cost what it costs to read the index of the log.
#[tokio::test(flavor = "multi_thread")]
async fn completed_events_are_found_behind_events_that_were_removed_and_one_that_stayed() {
    let url = database::migrated().await;
    database::execute(&url, REMAINS).await;
    database::execute(&url, "VACUUM ANALYZE").await;
    let app = app_on(url).await;
    let completed = EventFilter { status: Some(Status::Completed), ..any() };
    let wanted: Vec<i64> = (60_001..=60_005).collect();
    finds_within(&app, "COMPLETED behind 50,000 removed events", 1, &completed, &wanted, MOST_BEHIND_REMOVED).await;
    let wanted: Vec<i64> = (130_001..=130_005).collect();
    finds_within(&app, "COMPLETED among 200 that stayed", 3, &completed, &wanted, MOST_BEHIND_REMOVED).await;
}

/// The list of leases keeps for seconds what was settled. Each of them costs a look-up, but hides nothing.
#[tokio::test(flavor = "multi_thread")]
async fn held_events_are_found_among_thousands_that_were_settled_a_moment_ago() {
    const CLAIMED: i64 = 12_000;
    let url = database::migrated().await;
    let claimed = format!(
        "SELECT waybill.enforce_rules(false); \
         INSERT INTO waybill.events (id, title, tags) SELECT n, 'a job', 'many' FROM generate_series(1, {CLAIMED}) n; \
         INSERT INTO waybill.deliveries (id, event_id, status, priority, max_retries, lease_id, worker_id) \
             SELECT n, n, 'COMPLETED', 0, 3, n, 'host:1' FROM generate_series(1, {CLAIMED}) n; \
         SELECT setval('waybill.ids', 20000), setval('waybill.ready_seq', 20000)"
    );
    database::execute(&url, &claimed).await;
    let app = app_on(url).await;
    for wanted in [vec![1, 2, 3, 4, 5], vec![11_996, 11_997, 11_998, 11_999, 12_000]] {
        database::execute(&app.url, &STATES[2].1.replace("{ids}", &array(&wanted))).await;
        let watched = format!(
            "INSERT INTO waybill.lease_watch (look_at, delivery_ids) \
             SELECT now() + interval '10 seconds', array_agg(n) FROM generate_series(1, {CLAIMED}) n GROUP BY n / 10"
        );
        database::execute(&app.url, &watched).await;
        let most = CLAIMED * 5;
        let processing = EventFilter { status: Some(Status::Processing), ..any() };
        finds_within(&app, "PROCESSING among settled ones", 1, &processing, &wanted, most).await;
        let by_worker = EventFilter { worker_id: Some("holder:1".into()), ..any() };
        finds_within(&app, "worker among settled ones", 1, &by_worker, &wanted[..1], most).await;
        database::execute(&app.url, COMPLETE_AGAIN).await;
    }
}

/// A waiting event before thousands of held ones with an ordering key, and another behind them.
const KEYS_IN_FLIGHT: &str = "
    SELECT waybill.enforce_rules(false);
    CREATE TEMP TABLE keyed AS
        SELECT n AS id, CASE WHEN n % 12000 = 1 THEN 'PENDING' ELSE 'PROCESSING' END::waybill.status AS status
        FROM generate_series(1, 12001) n;
    INSERT INTO waybill.events (id, title, tags, ordering_key) SELECT id, 'a job', 'many', 'k' || id FROM keyed;
    INSERT INTO waybill.deliveries
            (id, event_id, status, priority, max_retries, lease_id, worker_id, lease_expires_at, due_at, order_seq, ordering_key)
        SELECT id, id, status, 0, 3, id, 'host:1',
               CASE status WHEN 'PROCESSING' THEN now() + interval '1 hour' END,
               CASE status WHEN 'PENDING' THEN now() + interval '1 hour' END, id, 'k' || id FROM keyed;
    SELECT setval('waybill.ids', 20000), setval('waybill.ready_seq', 20000);
";

/// A held event keeps its place behind its key. It costs a look at its row, but hides nothing.
#[tokio::test(flavor = "multi_thread")]
async fn pending_events_are_found_among_thousands_of_held_ones_with_an_ordering_key() {
    let url = database::migrated().await;
    database::execute(&url, KEYS_IN_FLIGHT).await;
    database::execute(&url, "VACUUM ANALYZE").await;
    let app = app_on(url).await;
    let pending = EventFilter { status: Some(Status::Pending), ..any() };
    finds_within(&app, "PENDING among held ones", 1, &pending, &[1, 12_001], MOST_AMONG_HELD).await;
    let both = EventFilter { tags: vec!["many".into()], ..pending };
    finds_within(&app, "PENDING and a tag among held ones", 1, &both, &[1, 12_001], MOST_AMONG_HELD).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_page_of_many_unfinished_or_failed_events_costs_as_little() {
    let app = app().await;
    let _states = STATES_IN_USE.lock().await;
    let ids: Vec<i64> = (400_001..=401_100).collect();
    for (status, statement) in STATES.into_iter().filter(|(status, _)| *status != Status::Pending) {
        database::execute(&app.url, &statement.replace("{ids}", &array(&ids))).await;
        let total = if status == Status::Processing { 100 } else { 1_000 };
        let by_status = Many {
            name: status.as_str(),
            namespace: 1,
            filter: EventFilter { status: Some(status), ..any() },
            condition: &format!("d.status = '{}'", status.as_str()),
            total,
            most_to_count: MOST_TO_COUNT,
        };
        by_status.find(&app).await;
        if status == Status::Processing {
            let filter = EventFilter { worker_id: Some("other:1".into()), ..any() };
            Many { name: "worker", filter, condition: "d.worker_id = 'other:1'", ..by_status }.find(&app).await;
        }
        database::execute(&app.url, COMPLETE_AGAIN).await;
    }
}
