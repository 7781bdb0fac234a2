//! What each page of the dashboard costs among a million events, in buffers. Pages are loaded from a server, as a browser
//! loads them, and PostgreSQL counts what all of their statements read.

use serde_json::json;
use waybill::domain::ids::NamespaceId;
use waybill::domain::scope::Scope;
use waybill::store::lists::attention::list_failures;

use super::lists;
use crate::support::ui_pages::{LISTS_AND_FORMS, missing_from, pages_of_one};
use crate::support::{App, Options, database, pages};

/// The most that a page may cost. A page of 50 ms could read ten times as many.
const MOST: i64 = 700;

/// The most that a page may cost which examines 2,000 events one by one, each with its delivery, because no index serves
/// its filter. Of COMPLETED there is none.
const MOST_OF_SEARCH: i64 = 20_000;

/// The same for the payloads of these events, which lie with the events here.
const MOST_OF_PAYLOADS: i64 = 30_000;

/// The most that the list of 50 subscriptions may cost: of each, the latest attempts are looked at.
const MOST_OF_SUBSCRIPTIONS: i64 = 16_000;

/// The most that one subscription may cost: its latest 100 pushes and attempts are looked at.
const MOST_OF_SUBSCRIPTION: i64 = 5_000;

/// The most that charts of a day or a week may cost.
const MOST_OF_CHARTS: i64 = 2_000;

/// The most that the failures on the overview may cost: 300 events, each with its delivery.
const MOST_OF_FAILURES: i64 = 1_600;

/// The number of loads of each page, of which the cheapest counts: the server's own services run in between, and a
/// connection that is new to a statement reads more.
const LOADS: usize = 5;

/// Gives the newest 100,000 of the million events a push to the first subscription, and 49,000 of them one to another.
/// One in ten has failed and is a dead letter, and the last 2,000 wait. There are audit entries, operations, revoked
/// keys, and the minutes of a week and the hours of a year of two servers.
const RECORDS: &str = "
    CREATE TEMP TABLE chosen AS SELECT row_number() OVER (ORDER BY id) AS number, id FROM waybill.subscriptions WHERE namespace_id = 1;
    CREATE TEMP TABLE pushes AS
        SELECT 6000000 + n * 2 AS id, n AS event_id, 1 AS number, n > 998000 AS waits FROM generate_series(900001, 1000000) n
        UNION ALL
        SELECT 6000001 + n * 2, n, 2 + n % 49, false FROM generate_series(900001, 949000) n;
    INSERT INTO waybill.deliveries (id, event_id, subscription_id, status, listed_status, priority, max_retries, lease_id, updated_at, ready_seq)
        SELECT p.id, event_id, c.id,
               (CASE WHEN waits THEN 'PENDING' WHEN event_id % 10 = 0 THEN 'FAILED' ELSE 'COMPLETED' END)::waybill.status,
               CASE WHEN NOT waits AND event_id % 10 = 0 THEN 'FAILED'::waybill.status END, 0, 4,
               CASE WHEN waits THEN 0 ELSE p.id END, now() - (1000001 - event_id) * interval '1.7 seconds', CASE WHEN waits THEN p.id END
        FROM pushes p JOIN chosen c USING (number) ORDER BY p.id;
    INSERT INTO waybill.ready (seq, delivery_id, rank, queue)
        SELECT p.id, p.id, 0, 's:' || c.id FROM pushes p JOIN chosen c USING (number) WHERE waits;
    INSERT INTO waybill.event_log (created_at, event_id, delivery_id, lease_id, attempt, action, worker_id, status_code, execution_time_ms)
        SELECT now() - (1000001 - p.event_id) * interval '1.7 seconds', p.event_id, p.id, p.id, 1, a.action::waybill.action, 'a server', 200, p.id % 90
        FROM pushes p, (VALUES ('PICKED'), ('ENDED')) w(word),
             LATERAL (SELECT CASE WHEN w.word = 'PICKED' THEN 'PICKED' WHEN p.event_id % 10 = 0 THEN 'FAILED' ELSE 'COMPLETED' END AS action) a
        WHERE NOT p.waits ORDER BY p.event_id, p.id, w.word DESC;
    INSERT INTO waybill.dead_letters (delivery_id, event_id, subscription_id, subscription_version, reason, created_at, event, subscription, attempts)
        SELECT p.id, event_id, c.id, 1, 'exhausted', now(), '{}', '{}', '[]'
        FROM pushes p JOIN chosen c USING (number) WHERE NOT waits AND event_id % 10 = 0 ORDER BY p.id;
    INSERT INTO waybill.audit_log (created_at, action, actor, address, detail)
        SELECT now() - (100000 - n) * interval '1 minute', 'calls.refused', 'robot', '192.0.2.7', '{\"calls\": 17}' FROM generate_series(1, 100000) n;
    INSERT INTO waybill.operations (kind, status, filter, per_second, matched, matched_is_exact, until_id, next_at, created_at, finished_at)
        SELECT 'retry_events', 'COMPLETED', '{}', 500, 0, true, 1, now(), now(), now() FROM generate_series(1, 20000);
    INSERT INTO waybill.api_keys (name, scopes, revoked_at, created_at)
        SELECT 'old ' || n, '{read}', now(), now() FROM generate_series(1, 5000) n;
    INSERT INTO waybill.workers (worker_id, tags, first_seen_at, last_seen_at)
        SELECT 'host:' || n, '{many}', now(), now() FROM generate_series(1, 1000) n;
    INSERT INTO waybill.stats_minutes
        SELECT date_trunc('minute', now()) - n * interval '1 minute', s, 1, 6, 10, 10, 10, 0, 0, 0, 0, 0, 0, 0, 0, t, '{30,31}', '{5,2}'
        FROM generate_series(0, 10079) n, generate_series(1, 2) s, unnest('{\"\",many}'::text[]) t ORDER BY n DESC, s, t;
    INSERT INTO waybill.stats_hours
        SELECT date_trunc('hour', now()) - n * interval '1 hour', s, 1, 6, 600, 600, 600, 0, 0, 0, 0, 0, 0, 0, 0, t, '{28,29}', '{200,100}'
        FROM generate_series(0, 8759) n, generate_series(1, 2) s, unnest('{\"\",many}'::text[]) t ORDER BY n DESC, s, t;
    SELECT setval('waybill.ids', 9000000), setval('waybill.ready_seq', 9000000);
";

/// Returns a server on a copy of the database of [`lists`], with all other records as well, and its statements counted.
async fn app() -> App {
    let url = lists::copied_url().await;
    let name = "ALTER DATABASE %I SET pg_stat_statements.track = ''all''";
    let counted = format!("DO $$ BEGIN EXECUTE format('{name}', current_database()); END $$");
    database::execute(&url, &format!("CREATE EXTENSION IF NOT EXISTS pg_stat_statements; {counted}")).await;
    let flags = ["--auto-reset=false", "--dispatch=false", "--check-rules=false", "--poll-interval-ms=60000"];
    let flags = flags.map(str::to_owned).to_vec();
    let app = App::start_with(Options { url: Some(url), flags, fixed_clock: true }).await.with_admin_key().await;
    pages::add_rows(&app).await;
    let orders = json!({"name": "orders", "event_types": ["unused"]});
    app.subscribe_many(47, "http://127.0.0.1:9/orders", orders).await;
    app.put("/event-types/order.paid", &json!({"description": "An order was paid."})).await.expect(201);
    app.namespace("empty").await;
    database::execute(&app.url, RECORDS).await;
    database::execute(&app.url, "VACUUM ANALYZE").await;
    app
}

/// Returns the buffers that all statements of the server have read since the last call.
async fn buffers_since(app: &App) -> i64 {
    let sum = "SELECT coalesce(sum(shared_blks_hit + shared_blks_read), 0) FROM pg_stat_statements \
               WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database()) AND query NOT LIKE '%pg_stat_statements%'";
    let buffers = app.count(sum).await;
    let reset =
        "SELECT pg_stat_statements_reset(0, (SELECT oid FROM pg_database WHERE datname = current_database()), 0)";
    database::execute(&app.url, reset).await;
    buffers
}

/// Returns what the cheapest of several loads of a page costs.
async fn cost_of(app: &App, path: &str) -> i64 {
    let mut least = i64::MAX;
    for _ in 0..LOADS {
        buffers_since(app).await;
        app.get(path).await.expect(200);
        least = least.min(buffers_since(app).await);
    }
    least
}

/// The words that the filter line can have, each with the most that a page of them may cost.
const FILTERS: &[(&str, i64)] = &[
    ("status:PENDING", MOST),
    ("status:PROCESSING", MOST),
    ("status:COMPLETED", MOST_OF_SEARCH),
    ("status:FAILED", MOST),
    ("status:CANCELLED", MOST),
    ("tag:many", MOST),
    ("tag:few", MOST),
    ("type:many", MOST),
    ("correlation:many", MOST),
    ("key:many", MOST),
    ("worker:host:1", MOST),
    ("since:24h", MOST),
    ("until:24h", MOST),
    ("status:FAILED since:24h tag:many", MOST),
    ("needle", MOST_OF_SEARCH),
    ("label.team=core", MOST_OF_SEARCH),
    ("payload.a=1", MOST_OF_PAYLOADS),
    ("-type:many", MOST_OF_SEARCH),
    ("-status:COMPLETED", MOST_OF_SEARCH),
];

/// Returns pages of one thing, with the most that each may cost.
async fn pages_about_one(app: &App) -> Vec<(String, i64)> {
    let first = app.count("SELECT min(id) FROM waybill.subscriptions WHERE namespace_id = 1").await;
    let most_of = |path: &str| {
        if path.starts_with("/ui/subscriptions/") { MOST_OF_SUBSCRIPTION } else { MOST }
    };
    let mut paths = pages_of_one(app).await;
    paths.extend([1, 300_007, 500_000, 999_990].map(|id| format!("/ui/events/{id}")));
    paths.extend([format!("/ui/subscriptions/{first}"), "/ui/deliveries/7990000".into()]);
    paths.push(format!("/ui/deliveries?subscription_id={first}"));
    paths.push(format!("/ui/dead-letters?subscription_id={first}&replayed=false"));
    let mut pages: Vec<(String, i64)> = paths.into_iter().map(|path| (path.clone(), most_of(&path))).collect();
    pages.push((format!("/ui/deliveries?subscription_id={first}&status=CANCELLED"), MOST_OF_SEARCH));
    pages
}

/// Returns lists and forms, with the most that each may cost.
fn lists_and_forms() -> Vec<(String, i64)> {
    let most_of = |path: &str| if path == "/ui/subscriptions" { MOST_OF_SUBSCRIPTIONS } else { MOST };
    let mut pages: Vec<(String, i64)> = LISTS_AND_FORMS.map(|path| (path.to_owned(), most_of(path))).into();
    for (words, most) in FILTERS {
        let words: String = url::form_urlencoded::byte_serialize(words.as_bytes()).collect();
        pages.push((format!("/ui/events?q={words}"), *most));
    }
    pages.extend(["/?span=24h", "/?span=7d"].map(|path| (path.to_owned(), MOST_OF_CHARTS)));
    let filtered = ["/ui/audit?actor=robot", "/ui/deliveries?status=FAILED"];
    pages.extend(filtered.map(|path| (path.to_owned(), MOST)));
    let searched = ["/ui/deliveries?status=PROCESSING", "/ui/dead-letters?replayed=true"];
    pages.extend(searched.map(|path| (path.to_owned(), MOST_OF_SEARCH)));
    pages
}

#[tokio::test(flavor = "multi_thread")]
async fn every_page_is_loaded_at_a_bounded_cost() {
    let app = app().await;
    let mut pages = lists_and_forms();
    pages.extend(pages_about_one(&app).await);
    // Of the third namespace all events wait, and another one has none.
    let elsewhere = ["/", "/ui/events", "/ui/events?q=status:PENDING", "/ui/tags", "/ui/workers"];
    for namespace in ["backlog", "empty"] {
        let path = |path: &str| format!("{path}{}namespace={namespace}", if path.contains('?') { '&' } else { '?' });
        pages.extend(elsewhere.map(|each| (path(each), MOST)));
    }
    let mut dear = Vec::new();
    for (path, most) in &pages {
        let buffers = cost_of(&app, path).await;
        println!("{buffers:>6} buffers of {most:>6}: {path}");
        if buffers > *most {
            dear.push(format!("{path}: {buffers} buffers"));
        }
    }
    assert!(dear.is_empty(), "{dear:?}");
    assert_eq!(missing_from(pages.iter().map(|(path, _)| path.as_str())), [""; 0], "all pages are measured");
}

/// Fifty thousand events that have failed in the last hour.
const FAILURES: &str = "
    SELECT waybill.enforce_rules(false);
    INSERT INTO waybill.events (id, title, tags) SELECT n, 'a job', 'billing' FROM generate_series(1, 50000) n;
    INSERT INTO waybill.deliveries (id, event_id, status, listed_status, priority, max_retries)
        SELECT n, n, 'FAILED', 'FAILED', 0, 3 FROM generate_series(1, 50000) n;
    SELECT setval('waybill.ids', 60000);
";

#[tokio::test(flavor = "multi_thread")]
async fn a_storm_of_failures_costs_the_overview_no_more_than_some_hundred_of_them() {
    let app = App::with_fixed_clock().await;
    database::execute(&app.url, FAILURES).await;
    let scope = Scope::new(NamespaceId::DEFAULT, None);
    // The statistics are those of empty tables at first.
    for state in ["believed empty", "analyzed"] {
        let read = async |conn: &mut _| list_failures(conn, &scope, 86_400.0, 300).await;
        let (rows, buffers) = app.buffers_of_repeated(read).await;
        println!("{state}: {buffers} buffers for {} failures", rows.len());
        assert!(rows.len() == 300 && rows.iter().all(|row| row.tags.is_some()));
        assert!(buffers <= MOST_OF_FAILURES, "{state}: {buffers} buffers");
        database::execute(&app.url, "ANALYZE waybill.deliveries, waybill.events").await;
    }
}
