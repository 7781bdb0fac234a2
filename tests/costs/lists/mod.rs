//! What lists of a million events cost, in buffers: wherever the matches lie, and however few there are.
//!
//! All cases share one database, and each test has a server of its own on it. Statistics are those of
//! `ANALYZE`, as after a night of autovacuum.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use diesel_async::RunQueryDsl;
use tokio::sync::{Mutex, OnceCell};
use waybill::domain::action::Action;
use waybill::domain::ids::{EventId, NamespaceId};
use waybill::domain::path::JsonPath;
use waybill::domain::scope::Scope;
use waybill::domain::search::PayloadConditions;
use waybill::domain::status::Status;
use waybill::store::lists::event_filter::Exclusions;
use waybill::store::lists::events::{EventFilter, EventPage, list_events};
use waybill::store::lists::log_entries::{LogFilter, LogPage, list_log_entries};
use waybill::store::lists::pages::Page;

use crate::support::{App, Options, database};

/// The number of events of the default namespace.
const EVENTS: i64 = 1_000_000;

/// The most that the first page of a list may cost, without what it costs to count on to the total.
const MOST: i64 = 200;

/// The same for a full page of completed events: ids of the log are compared with those of events first.
const MOST_OF_COMPLETED: i64 = 250;

/// The same behind tens of thousands of completions of removed events: each would cost four to look up.
const MOST_BEHIND_REMOVED: i64 = 4_000;

/// The most that counting to the total may cost: up to 1,000 along the source, or up to 100 with a look-up for each.
const MOST_TO_COUNT: i64 = 600;

/// The most that the total may cost if the rows of 1,000 events must be looked up for a second field.
const MOST_TO_COUNT_TWO_FIELDS: i64 = 5_000;

/// Almost all events of the first namespace are completed, at one every 1.7 seconds. The third has a backlog
/// of 200,000 events of which none is completed, and a log of 50,000 completed events that were removed. The
/// ninth has 2,000 events with payloads of 8 KiB, which lie outside their rows.
///
/// The log of the fifth namespace, a small one, lies among that of the first: see `tenants.rs`.
///
/// - `first`, `last` and `few` are a tag, a second tag, a type, a correlation id and an ordering key: of
///   the first 15 events, of the last 15, and of 3 in between. All else is `many`.
/// - In the log, these words are workers, and each has an action that no other worker has. The workers
///   `early:1` and `late:1` have 2 % of the entries of the first and the last 30 %.
const HISTORY: &str = "
    SELECT waybill.enforce_rules(false);
    INSERT INTO waybill.namespaces (id, name) VALUES (3, 'backlog');
    SELECT waybill.create_event_log_partition((now() - n * interval '1 week')::date) FROM generate_series(-1, 4) n;
    CREATE TEMP TABLE history AS
        SELECT n AS id, now() - (1000000 - n) * interval '1.7 seconds' AS created_at,
               CASE WHEN n <= 15 THEN 'first' WHEN n > 999985 THEN 'last' WHEN n % 300000 = 7 AND n > 15 THEN 'few' ELSE 'many' END AS word
        FROM generate_series(1, 1000000) n;
    INSERT INTO waybill.events (id, created_at, title, tags, event_type, ordering_key, correlation_id)
        SELECT id, created_at, 'a job', CASE WHEN word = 'many' THEN 'many' ELSE word || ',2-' || word END,
               word, word, word FROM history ORDER BY id;
    INSERT INTO waybill.event_tags (namespace_id, tag, event_id) SELECT 1, '2-' || word, id FROM history WHERE word <> 'many';
    INSERT INTO waybill.deliveries (id, event_id, status, priority, max_retries, lease_id, worker_id)
        SELECT id, id, 'COMPLETED', 0, 3, id, 'host:' || id % 20 FROM history ORDER BY id;
    INSERT INTO waybill.event_log (namespace_id, event_id, lease_id, attempt, action, worker_id)
        SELECT 3, n, n, 1, 'COMPLETED', 'host:1' FROM generate_series(1900001, 1950000) n;
    INSERT INTO waybill.event_log (namespace_id, created_at, event_id, delivery_id, lease_id, attempt, action, worker_id)
        SELECT t.id, h.created_at + a.later, h.id, CASE a.word WHEN 'push' THEN 4000000 + h.id END, h.id, 1, a.action::waybill.action,
               CASE WHEN t.id = 5 THEN 'small:1' WHEN h.word <> 'many' THEN h.word || ':1' WHEN h.id > 700000 AND h.id % 50 = 0 THEN 'late:1'
                    WHEN h.id < 300000 AND h.id % 50 = 0 THEN 'early:1' ELSE 'host:' || h.id % 20 END
        FROM history h, (VALUES ('1 s'::interval, 'PICKED', NULL), ('2 s', 'STARTED', 'few'), ('2 s', 'RELEASED', 'first'),
                                ('2 s', 'RESET', 'last'), ('3 s', 'FAILED', 'push'), ('3 s', 'COMPLETED', NULL)) a(later, action, word), (VALUES (1), (5)) t(id)
        WHERE (t.id = 1 AND (a.word IS NULL OR a.word = h.word OR (a.word = 'push' AND h.id % 50000 = 0)))
           OR (t.id = 5 AND a.word IS NULL AND h.id % 50000 = 25000)
        ORDER BY h.id, a.later;
    INSERT INTO waybill.events (namespace_id, id, title, tags)
        SELECT 3, n, 'a job', 'many' FROM generate_series(2000001, 2200000) n;
    INSERT INTO waybill.deliveries (namespace_id, id, event_id, status, priority, max_retries, ready_seq)
        SELECT 3, n, n, 'PENDING', 0, 3, n FROM generate_series(2000001, 2200000) n;
    INSERT INTO waybill.ready (namespace_id, seq, delivery_id, rank, queue)
        SELECT 3, n, n, 0, 't:many' FROM generate_series(2000001, 2200000) n;
    INSERT INTO waybill.namespaces (id, name) VALUES (9, 'large');
    INSERT INTO waybill.events (namespace_id, id, title, tags, payload, payload_bytes)
        SELECT 9, n, 'a job', 'many', payload::json, octet_length(payload)
        FROM (SELECT n, '{\"n\": ' || n || ', \"x\": \"' || string_agg(md5(n::text || part), '') || '\"}' AS payload
              FROM generate_series(2500001, 2502000) n, generate_series(1, 256) part GROUP BY n) p ORDER BY n;
    INSERT INTO waybill.deliveries (namespace_id, id, event_id, status, priority, max_retries, lease_id)
        SELECT 9, n, n, 'COMPLETED', 0, 3, n FROM generate_series(2500001, 2502000) n;
    SELECT setval('waybill.ids', 3000000), setval('waybill.ready_seq', 3000000);
";

/// The shared database, and a copy of it that nobody uses: a database that is in use cannot be copied.
static URLS: OnceCell<(String, String)> = OnceCell::const_new();

async fn urls() -> &'static (String, String) {
    URLS.get_or_init(|| async {
        let url = database::migrated().await;
        for table in ["events", "deliveries", "ready", "lease_watch", "event_tags"] {
            database::execute(&url, &format!("ALTER TABLE waybill.{table} SET (autovacuum_enabled = off)")).await;
        }
        database::execute(&url, HISTORY).await;
        database::execute(&url, "VACUUM ANALYZE").await;
        // As a server does every few seconds.
        let blocks = "SELECT brin_summarize_new_values(indexrelid) FROM pg_stat_user_indexes \
                      WHERE schemaname = 'waybill' AND indexrelname LIKE 'event_log_%_worker_id_idx'";
        database::execute(&url, blocks).await;
        let copy = database::copy_of(&url).await;
        (url, copy)
    })
    .await
}

/// Returns the URL of a copy of the shared database, for the one test that adds records to it.
pub(super) async fn copied_url() -> String {
    urls().await.1.clone()
}

/// Returns a server on the shared database. Nothing happens there on its own.
pub(super) async fn app() -> App {
    app_on(urls().await.0.clone()).await
}

async fn app_on(url: String) -> App {
    let flags = ["--auto-reset=false", "--dispatch=false", "--check-rules=false"].map(str::to_owned).to_vec();
    App::start_with(Options { url: Some(url), flags, fixed_clock: true }).await
}

pub(super) fn page(descending: bool) -> Page {
    Page { descending, after: None, limit: 20, scan: 10_000 }
}

async fn list(app: &App, namespace: i32, filter: &EventFilter, page: Page) -> (EventPage, i64) {
    let scope = Scope::new(NamespaceId(namespace), None);
    app.buffers_of_repeated(async |conn| list_events(conn, &scope, filter, page, 0).await).await
}

fn ids(page: &EventPage) -> Vec<i64> {
    page.events.iter().map(|row| row.event.id.0).collect()
}

/// Asserts that the first page has these events and no others in both orders, within `MOST` buffers.
async fn finds(app: &App, name: &str, namespace: i32, filter: &EventFilter, wanted: &[i64]) {
    finds_within(app, name, namespace, filter, wanted, MOST).await;
}

/// Does the same with another bound.
async fn finds_within(app: &App, name: &str, namespace: i32, filter: &EventFilter, wanted: &[i64], most: i64) {
    for descending in [false, true] {
        let (found, buffers) = list(app, namespace, filter, page(descending)).await;
        let mut wanted = wanted.to_vec();
        if descending {
            wanted.reverse();
        }
        println!("{name}, descending: {descending}: {buffers} buffers for {} events", found.events.len());
        assert_eq!(ids(&found), wanted, "{name}, descending: {descending}");
        assert_eq!((found.total, found.total_is_exact), (wanted.len() as i64, true), "{name}");
        assert_eq!((found.end, found.searched_to), (None, None), "{name}");
        assert!(buffers <= most, "{name}, descending: {descending}: {buffers} buffers");
    }
}

fn any() -> EventFilter {
    EventFilter::default()
}

/// Returns the filters by a field of an event that match a word.
fn by_word(word: &str) -> Vec<(&'static str, EventFilter)> {
    let text = || Some(word.to_owned());
    vec![
        ("tag", EventFilter { tags: vec![word.to_owned()], ..any() }),
        ("second tag", EventFilter { tags: vec![format!("2-{word}")], ..any() }),
        ("type", EventFilter { event_type: text(), ..any() }),
        ("correlation id", EventFilter { correlation_id: text(), ..any() }),
        ("ordering key", EventFilter { ordering_key: text(), ..any() }),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn events_are_found_by_each_field_wherever_they_lie_and_however_few() {
    let app = app().await;
    let first: Vec<i64> = (1..=15).collect();
    let last: Vec<i64> = (EVENTS - 14..=EVENTS).collect();
    for (word, wanted) in [("first", first), ("last", last), ("few", vec![300_007, 600_007, 900_007]), ("none", vec![])]
    {
        for (field, filter) in by_word(word) {
            finds(&app, &format!("{field} {word}"), 1, &filter, &wanted).await;
        }
        let both = EventFilter { tags: vec![word.to_owned(), format!("2-{word}"), "unused".to_owned()], ..any() };
        finds(&app, &format!("any of three tags {word}"), 1, &both, &wanted).await;
    }
}

async fn list_log(app: &App, filter: &LogFilter, page: Page) -> (LogPage, i64) {
    let scope = Scope::new(NamespaceId::DEFAULT, None);
    app.buffers_of_repeated(async |conn| list_log_entries(conn, &scope, filter, page).await).await
}

/// Asserts that the first page of the log has `wanted` entries that match, in order, within `MOST` buffers.
async fn finds_log(app: &App, name: &str, filter: &LogFilter, wanted: usize) {
    for descending in [false, true] {
        let (found, buffers) = list_log(app, filter, page(descending)).await;
        println!("{name}, descending: {descending}: {buffers} buffers for {} entries", found.entries.len());
        let entries = &found.entries;
        assert_eq!(entries.len(), wanted, "{name}, descending: {descending}");
        assert!(entries.is_sorted_by(|a, b| if descending { a.id > b.id } else { a.id < b.id }), "{name}");
        for entry in entries {
            assert!(filter.worker_id.is_none() || entry.worker_id == filter.worker_id, "{name}: {entry:?}");
            assert!(filter.action.is_none_or(|action| entry.action.0 == action), "{name}: {entry:?}");
            assert!(filter.since.is_none_or(|since| entry.created_at >= since), "{name}: {entry:?}");
            assert!(filter.until.is_none_or(|until| entry.created_at < until), "{name}: {entry:?}");
        }
        assert_eq!(found.searched_to, None, "{name}");
        assert!(buffers <= MOST, "{name}, descending: {descending}: {buffers} buffers");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn log_entries_are_found_by_worker_action_and_time_wherever_they_lie_and_however_few() {
    let app = app().await;
    let any = LogFilter::default;
    let by_worker = |word: &str| LogFilter { worker_id: Some(format!("{word}:1")), ..any() };
    let by_action = |action: Action| LogFilter { action: Some(action), ..any() };
    finds_log(&app, "all", &any(), 20).await;
    for (word, action, wanted) in [
        ("first", Action::Released, 15),
        ("last", Action::Reset, 15),
        ("few", Action::Started, 3),
        ("none", Action::Retried, 0),
    ] {
        finds_log(&app, &format!("action {word}"), &by_action(action), wanted).await;
        finds_log(&app, &format!("worker {word}"), &by_worker(word), (wanted * 3).min(20)).await;
        let both = LogFilter { action: Some(action), ..by_worker(word) };
        finds_log(&app, &format!("worker and action {word}"), &both, wanted).await;
        let both = LogFilter { action: Some(Action::Picked), ..by_worker(word) };
        finds_log(&app, &format!("worker {word} and a common action"), &both, wanted).await;
    }
    finds_log(&app, "common worker", &LogFilter { worker_id: Some("host:7".into()), ..any() }, 20).await;
    finds_log(&app, "event", &LogFilter { event_id: Some(EventId(500_001)), ..any() }, 2).await;
    for action in [Action::Picked, Action::Completed] {
        finds_log(&app, "common action", &by_action(action), 20).await;
    }
}

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

/// Held by a test while it changes states of the shared database, and by one that expects those of [`HISTORY`].
static STATES_IN_USE: Mutex<()> = Mutex::const_new(());

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

/// Returns when an event was created.
async fn created_at(app: &App, id: i64) -> DateTime<Utc> {
    #[derive(diesel::QueryableByName)]
    struct Row {
        #[diesel(sql_type = diesel::sql_types::Timestamptz)]
        created_at: DateTime<Utc>,
    }
    let sql = format!("SELECT created_at FROM waybill.events WHERE namespace_id = 1 AND id = {id}");
    let row: Row =
        diesel::sql_query(sql).get_result(&mut database::connection(&app.url).await).await.expect("an event");
    row.created_at
}

#[tokio::test(flavor = "multi_thread")]
async fn events_and_log_entries_are_found_by_time_wherever_it_lies() {
    let app = app().await;
    let at = async |id: i64| Some(created_at(&app, id).await);
    for (name, since, until, wanted) in [
        ("time first", None, at(16).await, 1..16),
        ("time last", at(EVENTS - 14).await, None, EVENTS - 14..EVENTS + 1),
        ("time between", at(500_000).await, at(500_003).await, 500_000..500_003),
        ("time before all", None, at(1).await, 0..0),
        ("time after all", at(EVENTS).await.map(|time| time + chrono::TimeDelta::days(1)), None, 0..0),
    ] {
        let wanted: Vec<i64> = wanted.collect();
        let by_time = EventFilter { since, until, ..any() };
        finds(&app, name, 1, &by_time, &wanted).await;
        let completed = EventFilter { status: Some(Status::Completed), ..by_time.clone() };
        finds(&app, &format!("{name}, completed"), 1, &completed, &wanted).await;
        let held = EventFilter { worker_id: Some("nobody:1".into()), ..by_time };
        finds(&app, &format!("{name}, of a worker"), 1, &held, &[]).await;
        // Two entries per event, and three of the first and the last ones, up to 3 seconds later.
        let by_time = LogFilter { since, until, ..LogFilter::default() };
        for descending in [false, true] {
            let (found, buffers) = list_log(&app, &by_time, page(descending)).await;
            println!("log, {name}, descending: {descending}: {buffers} buffers for {} entries", found.entries.len());
            assert!(found.entries.iter().all(|entry| since.is_none_or(|since| entry.created_at >= since)));
            assert!(found.entries.iter().all(|entry| until.is_none_or(|until| entry.created_at < until)));
            assert_eq!(found.entries.is_empty(), wanted.is_empty(), "{name}");
            assert!(buffers <= MOST, "log, {name}: {buffers} buffers");
        }
    }
}

/// Returns what the first page costs without its total: a search behind a cursor does not count.
async fn cost_without_total(app: &App, namespace: i32, filter: &EventFilter, descending: bool) -> i64 {
    let not = Exclusions { event_type: Some("unused".into()), ..Exclusions::default() };
    let after = Some(if descending { 9_007_199_254_740_991 } else { 0 });
    let (found, buffers) =
        list(app, namespace, &EventFilter { not, ..filter.clone() }, Page { after, ..page(descending) }).await;
    assert_eq!((found.events.len(), found.total), (20, 20));
    buffers
}

/// Asserts that the first page of more matches than a total counts is full in both orders, that it costs at most `MOST`
/// buffers without the total, and that counting on to the total costs at most `most_to_count`.
async fn finds_many(app: &App, name: &str, namespace: i32, filter: &EventFilter, total: i64, most_to_count: i64) {
    let most = if filter.status == Some(Status::Completed) { MOST_OF_COMPLETED } else { MOST };
    for descending in [false, true] {
        let (found, buffers) = list(app, namespace, filter, page(descending)).await;
        assert_eq!((found.events.len(), found.total, found.total_is_exact), (20, total, false), "{name}");
        assert!(found.end.is_some() && found.searched_to.is_none(), "{name}");
        let alone = cost_without_total(app, namespace, filter, descending).await;
        println!("{name}, descending: {descending}: {alone} buffers, and {} to count", buffers - alone);
        assert!(alone <= most, "{name}, descending: {descending}: {alone} buffers");
        assert!(buffers - alone <= most_to_count, "{name}: {} buffers to count", buffers - alone);
    }
}

/// A page of many matches costs as little. To count them costs as little again, unless there are two fields: then each
/// event is looked up, up to 1,000.
#[tokio::test(flavor = "multi_thread")]
async fn the_first_page_of_many_matches_costs_as_little_and_their_count_is_bounded() {
    let app = app().await;
    let status = |status: Status| EventFilter { status: Some(status), ..any() };
    let mut cases: Vec<(&str, i32, EventFilter)> = vec![("all", 1, any()), ("PENDING", 3, status(Status::Pending))];
    cases.extend(
        by_word("many").into_iter().filter(|(field, _)| *field != "second tag").map(|(name, filter)| (name, 1, filter)),
    );
    cases.push(("time", 1, EventFilter { since: Some(created_at(&app, 500_000).await), ..any() }));
    for (name, namespace, filter) in cases {
        finds_many(&app, name, namespace, &filter, 1_000, MOST_TO_COUNT).await;
    }
    finds_many(&app, "COMPLETED", 1, &status(Status::Completed), 100, MOST_TO_COUNT).await;
    let both = EventFilter { tags: vec!["many".into()], ..status(Status::Completed) };
    finds_many(&app, "COMPLETED and a tag", 1, &both, 1_000, MOST_TO_COUNT_TWO_FIELDS).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_page_of_many_unfinished_or_failed_events_costs_as_little() {
    let app = app().await;
    let _states = STATES_IN_USE.lock().await;
    let ids: Vec<i64> = (400_001..=401_100).collect();
    for (status, statement) in STATES.into_iter().filter(|(status, _)| *status != Status::Pending) {
        database::execute(&app.url, &statement.replace("{ids}", &array(&ids))).await;
        let is_listed = status != Status::Processing;
        let by_status = EventFilter { status: Some(status), ..any() };
        let total = if is_listed { 1_000 } else { 100 };
        finds_many(&app, status.as_str(), 1, &by_status, total, MOST_TO_COUNT).await;
        if !is_listed {
            let by_worker = EventFilter { worker_id: Some("other:1".into()), ..any() };
            finds_many(&app, "worker", 1, &by_worker, total, MOST_TO_COUNT).await;
        }
        database::execute(&app.url, COMPLETE_AGAIN).await;
    }
}

/// A worker with many entries, none of them among the last. Its newest ones are looked for in parts of the log.
#[tokio::test(flavor = "multi_thread")]
async fn the_newest_entries_of_a_worker_that_left_long_ago_are_found_at_a_bounded_cost() {
    let app = app().await;
    for (worker, newest) in [("early:1", Some(299_950)), ("late:1", None)] {
        let filter = LogFilter { worker_id: Some(worker.to_owned()), ..LogFilter::default() };
        for descending in [false, true] {
            let (found, buffers) = list_log(&app, &filter, page(descending)).await;
            println!("{worker}, descending: {descending}: {buffers} buffers");
            assert_eq!(found.entries.len(), 20);
            assert!(found.entries.iter().all(|entry| entry.worker_id == filter.worker_id));
            if let Some(newest) = newest.filter(|_| descending) {
                assert_eq!(found.entries[0].event_id, EventId(newest));
            }
            assert!(
                buffers <= if descending { 1_700 } else { MOST },
                "{worker}, descending: {descending}: {buffers} buffers"
            );
        }
    }
}

/// The most that a page may cost that examines 10,000 events: two look-ups each.
const MOST_EXAMINED: i64 = 85_000;

/// The most that a page may cost that reads 2,000 payloads, or 4 MiB of large ones.
const MOST_PAYLOADS: i64 = 30_000;

fn payload(path: &str, value: &str) -> PayloadConditions {
    PayloadConditions::from([(JsonPath::parse(path).expect("a path"), value.to_owned())])
}

/// Returns filters that match nothing, which no index can tell, and the most that a page of them may cost.
fn without_index() -> Vec<(&'static str, i64, EventFilter)> {
    let label = || BTreeMap::from([("team".to_owned(), "core".to_owned())]);
    let not = |not: Exclusions| EventFilter { not, ..any() };
    vec![
        ("text", MOST_EXAMINED, EventFilter { text: Some("needle".into()), ..any() }),
        ("label", MOST_EXAMINED, EventFilter { labels: label(), ..any() }),
        ("not text", MOST_EXAMINED, not(Exclusions { text: Some("A JOB".into()), ..Exclusions::default() })),
        ("not status", MOST_EXAMINED, not(Exclusions { status: Some(Status::Completed), ..Exclusions::default() })),
        ("payload", MOST_PAYLOADS, EventFilter { payload: payload("a.b", "1"), ..any() }),
        // Each has its source, and the rows of the one that leads never match the other.
        (
            "COMPLETED of another worker",
            MOST_EXAMINED,
            EventFilter { worker_id: Some("nobody:1".into()), status: Some(Status::Completed), ..any() },
        ),
    ]
}

/// What no index serves is searched for in steps. A step costs the same wherever it begins, and says where it ended.
#[tokio::test(flavor = "multi_thread")]
async fn searches_without_an_index_have_a_bounded_cost_and_say_how_far_they_got() {
    let app = app().await;
    let _states = STATES_IN_USE.lock().await;
    for (name, most, filter) in without_index() {
        for (descending, after) in [(false, None), (true, None), (false, Some(500_000)), (true, Some(500_000))] {
            let started = std::time::Instant::now();
            let (found, buffers) = list(&app, 1, &filter, Page { after, ..page(descending) }).await;
            let end = found.end.expect("a position");
            let examined = (end - after.unwrap_or(if descending { EVENTS } else { 0 })).abs();
            println!("{name}, after {after:?}: {buffers} buffers for {examined} events, {:?}", started.elapsed() / 2);
            assert!(found.events.is_empty() && found.searched_to.is_some(), "{name}");
            assert_eq!((found.total, found.total_is_exact), (0, false), "{name}");
            assert!(buffers <= most, "{name}, after {after:?}: {buffers} buffers");
            assert!(examined >= 1_990, "{name}: only {examined} events");
        }
    }
    // Another filter leads, and what has no index is checked on what it finds.
    for (name, _, filter) in without_index().into_iter().filter(|(name, ..)| *name != "not text") {
        let both = EventFilter { event_type: Some("few".into()), ..filter };
        finds(&app, &format!("{name} of a rare type"), 1, &both, &[]).await;
    }
    let both = EventFilter { event_type: Some("few".into()), text: Some("A job".into()), ..any() };
    finds(&app, "text of a rare type", 1, &both, &[300_007, 600_007, 900_007]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn large_payloads_are_read_up_to_a_size() {
    let app = app().await;
    let filter = EventFilter { payload: payload("n", "2502000"), ..any() };
    let (mut after, mut pages, mut found) = (None, 0, Vec::new());
    loop {
        let (page, buffers) = list(&app, 9, &filter, Page { after, ..page(false) }).await;
        println!("large payloads, after {after:?}: {buffers} buffers");
        assert!(buffers <= MOST_PAYLOADS, "{buffers} buffers");
        found.extend(ids(&page));
        (after, pages) = (page.end, pages + 1);
        if after.is_none() {
            break;
        }
    }
    assert_eq!((pages, found), (4, vec![2_502_000]), "512 payloads of 8 KiB are 4 MiB");
}
