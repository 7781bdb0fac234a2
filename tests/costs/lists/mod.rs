//! What lists of a million events cost, in buffers: wherever the matches lie, and however few there are.
//!
//! All cases share one database, and each test has a server of its own on it. Statistics are those of
//! `ANALYZE`, as after a night of autovacuum.

mod by_state;
mod log;
mod many;
mod searches;

use std::ops::Range;

use chrono::{DateTime, TimeDelta, Utc};
use diesel::QueryableByName;
use diesel::sql_types::{Array, BigInt, Timestamptz};
use diesel_async::RunQueryDsl;
use tokio::sync::{Mutex, OnceCell};
use waybill::domain::ids::NamespaceId;
use waybill::domain::scope::Scope;
use waybill::domain::status::Status;
use waybill::store::lists::events::{EventFilter, EventPage, list_events};
use waybill::store::lists::pages::Page;

use crate::support::{App, Options, database};

/// The number of events of the default namespace.
const EVENTS: i64 = 1_000_000;

/// The most that the first page of a list may cost, without what it costs to count on to the total.
const MOST: i64 = 200;

/// Almost all events of the first namespace are completed, at one every 1.7 seconds. The third has a backlog
/// of 200,000 events of which none is completed, and a log of 50,000 completed events that were removed. The
/// ninth has 2,000 events with payloads of 8 KiB, which lie outside their rows.
///
/// The log of the fifth namespace, a small one, lies among that of the first: see `tenants.rs`.
///
/// - `first`, `last` and `few` are a tag, a second tag, a type, a correlation id and an ordering key: of
///   the first 15 events, of the last 15, and of 3 in between. All else is `many`.
/// - Of the events from 100,001 to 200,000, every other one has the tag `left` instead, and the ones between them have
///   the type `right`. No event has both.
/// - In the log, these words are workers, and each has an action that no other worker has. The workers
///   `early:1` and `late:1` have 2 % of the entries of the first and the last 30 %.
const HISTORY: &str = "
    SELECT waybill.enforce_rules(false);
    INSERT INTO waybill.namespaces (id, name) VALUES (3, 'backlog');
    SELECT waybill.create_event_log_partition((now() - n * interval '1 week')::date) FROM generate_series(-1, 4) n;
    CREATE TEMP TABLE history AS
        SELECT n AS id, now() - (1000000 - n) * interval '1.7 seconds' AS created_at,
               CASE WHEN n <= 15 THEN 'first' WHEN n > 999985 THEN 'last' WHEN n % 300000 = 7 AND n > 15 THEN 'few' ELSE 'many' END AS word,
               CASE WHEN n > 100000 AND n <= 200000 THEN CASE n % 2 WHEN 1 THEN 'left' ELSE 'right' END END AS side
        FROM generate_series(1, 1000000) n;
    INSERT INTO waybill.events (id, created_at, title, tags, event_type, ordering_key, correlation_id)
        SELECT id, created_at, 'a job', CASE WHEN side = 'left' THEN side WHEN word = 'many' THEN word ELSE word || ',2-' || word END,
               CASE WHEN side = 'right' THEN side ELSE word END, word, word FROM history ORDER BY id;
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

/// Held by a test while it changes states of the shared database, and by one that expects those of [`HISTORY`].
static STATES_IN_USE: Mutex<()> = Mutex::const_new(());

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

/// The ids of the first 20 rows of a list in both orders, as a plain query finds them.
#[derive(QueryableByName)]
struct Ends {
    #[diesel(sql_type = Array<BigInt>)]
    oldest: Vec<i64>,
    #[diesel(sql_type = Array<BigInt>)]
    newest: Vec<i64>,
}

impl Ends {
    /// Reads all ids that `matching` selects.
    async fn of(app: &App, matching: &str) -> Self {
        let first = |order: &str| format!("ARRAY(SELECT id FROM matching ORDER BY id {order} LIMIT 20)");
        let (oldest, newest) = (first("ASC"), first("DESC"));
        let sql = format!("WITH matching AS MATERIALIZED ({matching}) SELECT {oldest} AS oldest, {newest} AS newest");
        diesel::sql_query(sql).get_result(&mut database::connection(&app.url).await).await.expect("ids")
    }

    fn page(&self, descending: bool) -> &[i64] {
        if descending { &self.newest } else { &self.oldest }
    }
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

/// Returns when an event was created.
async fn created_at(app: &App, id: i64) -> DateTime<Utc> {
    #[derive(QueryableByName)]
    struct Row {
        #[diesel(sql_type = Timestamptz)]
        created_at: DateTime<Utc>,
    }
    let sql = format!("SELECT created_at FROM waybill.events WHERE namespace_id = 1 AND id = {id}");
    let row: Row =
        diesel::sql_query(sql).get_result(&mut database::connection(&app.url).await).await.expect("an event");
    row.created_at
}

/// Returns ranges of time, with the ids of the events in each.
async fn times(app: &App) -> [(&'static str, [Option<DateTime<Utc>>; 2], Range<i64>); 5] {
    let at = async |id: i64| Some(created_at(app, id).await);
    let tomorrow = at(EVENTS).await.map(|time| time + TimeDelta::days(1));
    [
        ("time first", [None, at(16).await], 1..16),
        ("time last", [at(EVENTS - 14).await, None], EVENTS - 14..EVENTS + 1),
        ("time between", [at(500_000).await, at(500_003).await], 500_000..500_003),
        ("time before all", [None, at(1).await], 0..0),
        ("time after all", [tomorrow, None], 0..0),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn events_are_found_by_time_wherever_it_lies() {
    let app = app().await;
    for (name, [since, until], wanted) in times(&app).await {
        let wanted: Vec<i64> = wanted.collect();
        let by_time = EventFilter { since, until, ..any() };
        finds(&app, name, 1, &by_time, &wanted).await;
        let completed = EventFilter { status: Some(Status::Completed), ..by_time.clone() };
        finds(&app, &format!("{name}, completed"), 1, &completed, &wanted).await;
        let held = EventFilter { worker_id: Some("nobody:1".into()), ..by_time };
        finds(&app, &format!("{name}, of a worker"), 1, &held, &[]).await;
    }
}
