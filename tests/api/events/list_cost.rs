//! What lists cost in a long history, measured in buffers, which are the same on every machine.

use chrono::DateTime;
use diesel::QueryResult;
use diesel::dsl::sql;
use diesel::sql_types::BigInt;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use waybill::domain::ids::NamespaceId;
use waybill::domain::scope::Scope;
use waybill::domain::status::Status;
use waybill::store::lists::events::{EventFilter, EventPage, list_events};
use waybill::store::lists::pages::Page;

use crate::support::{App, database};

/// Starts a server with a history of finished events. Statistics and visibility map, which
/// influence the plans, stay unchanged until a test updates them.
async fn with_history(events: i64) -> App {
    let app = App::start().await;
    let off = "SET (autovacuum_enabled = off)";
    let tables = format!("ALTER TABLE waybill.events {off}; ALTER TABLE waybill.deliveries {off}");
    database::execute(&app.url, &tables).await;
    grow_history(&app, 1, events).await;
    app
}

/// Every 5,000th event has failed, and every 9,000th belongs to one correlation id.
async fn grow_history(app: &App, first: i64, last: i64) {
    let sql = format!(
        "INSERT INTO waybill.events (id, title, tags, correlation_id) \
             SELECT n, 'a job', 'bulk', CASE WHEN n % 9000 = 0 THEN 'story' END \
             FROM generate_series({first}, {last}) AS n; \
         INSERT INTO waybill.deliveries (id, event_id, status, listed_status, priority, max_retries, lease_id) \
             SELECT n, n, CASE WHEN n % 5000 = 0 THEN 'FAILED' ELSE 'COMPLETED' END::waybill.status, \
                    CASE WHEN n % 5000 = 0 THEN 'FAILED'::waybill.status END, 0, 3, 1 \
             FROM generate_series({first}, {last}) AS n; \
         SELECT setval('waybill.ids', {last});"
    );
    database::execute(&app.url, &sql).await;
}

async fn analyze(app: &App) {
    for table in ["events", "deliveries"] {
        database::execute(&app.url, &format!("VACUUM ANALYZE waybill.{table}")).await;
    }
}

fn filters() -> Vec<(&'static str, EventFilter)> {
    let any = EventFilter::default;
    vec![
        ("none", any()),
        ("failed", EventFilter { status: Some(Status::Failed), ..any() }),
        ("failed and tagged", EventFilter { status: Some(Status::Failed), tags: vec!["bulk".into()], ..any() }),
        ("correlation", EventFilter { correlation_id: Some("story".into()), ..any() }),
        ("common tag", EventFilter { tags: vec!["bulk".into()], ..any() }),
        ("unused tag", EventFilter { tags: vec!["rare".into()], ..any() }),
        ("type", EventFilter { event_type: Some("rare".into()), ..any() }),
        ("worker", EventFilter { worker_id: Some("rare:1".into()), ..any() }),
        ("pending", EventFilter { status: Some(Status::Pending), ..any() }),
        ("processing", EventFilter { status: Some(Status::Processing), ..any() }),
        ("completed", EventFilter { status: Some(Status::Completed), ..any() }),
        ("ordering key", EventFilter { ordering_key: Some("rare".into()), ..any() }),
        ("created", EventFilter { until: Some(DateTime::UNIX_EPOCH), ..any() }),
    ]
}

fn page(after: Option<i64>, descending: bool) -> Page {
    Page { descending, after, limit: 20, scan: 500 }
}

/// Lists events. Returns the page and the number of buffers that it took.
async fn cost(app: &App, filter: &EventFilter, page: Page) -> (EventPage, i64) {
    app.buffers_of(async |conn| list_events(conn, &Scope::new(NamespaceId::DEFAULT, None), filter, page, 0).await).await
}

/// Returns the buffers of the first page under each filter, in both orders.
async fn costs(app: &App) -> Vec<(String, i64)> {
    let mut costs = Vec::new();
    for (name, filter) in filters() {
        for descending in [false, true] {
            let (_, buffers) = cost(app, &filter, page(None, descending)).await;
            costs.push((format!("{name}, descending: {descending}"), buffers));
        }
    }
    costs
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_deep_in_a_long_history_cost_what_the_first_page_costs() {
    let app = with_history(120_000).await;
    for analyzed in [false, true] {
        if analyzed {
            analyze(&app).await;
        }
        for (name, filter) in filters() {
            for (descending, depths) in [(false, [60_000, 118_000]), (true, [60_000, 2_000])] {
                let (_, first) = cost(&app, &filter, page(None, descending)).await;
                for after in depths {
                    let (_, deep) = cost(&app, &filter, page(Some(after), descending)).await;
                    // Behind a cursor, the total is counted from the beginning.
                    assert!(deep <= first * 2 + 20, "{name} after {after}: {deep} buffers, the first page {first}");
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_and_totals_cost_the_same_however_long_the_history() {
    let app = with_history(20_000).await;
    analyze(&app).await;
    let short = costs(&app).await;
    grow_history(&app, 20_001, 120_000).await;
    analyze(&app).await;
    let long = costs(&app).await;
    for ((name, short), (_, long)) in short.into_iter().zip(long) {
        // Failed events and those of a correlation id are all counted, and the long history has
        // more of them.
        let is_counted = name.starts_with("failed") || name.starts_with("correlation");
        let allowed = if is_counted { 500 } else { short * 3 / 2 };
        assert!(long <= allowed, "{name}: {long} buffers in a long history, {short} in a short one");
    }
}

/// Wrong statistics that the planner can be given, and how.
const WRONG_STATISTICS: [(&str, &[&str]); 6] = [
    ("there are no statistics", &["DELETE FROM pg_statistic WHERE starelid::regclass::text LIKE 'waybill.%'"]),
    ("there is one event", &["UPDATE pg_class SET reltuples = 1 WHERE oid = 'waybill.events'::regclass"]),
    ("there is one delivery", &["UPDATE pg_class SET reltuples = 1 WHERE oid = 'waybill.deliveries'::regclass"]),
    (
        "each value occurs once",
        &["UPDATE pg_class SET reltuples = 1 WHERE relname IN ('events', 'deliveries') AND relkind = 'r'"],
    ),
    (
        "everything has failed, under one correlation id",
        &[
            "UPDATE waybill.deliveries SET status = 'FAILED', listed_status = 'FAILED'; UPDATE waybill.events SET correlation_id = 'story'; \
             ANALYZE waybill.events, waybill.deliveries; \
             UPDATE waybill.deliveries SET status = 'COMPLETED', listed_status = NULL WHERE id % 5000 <> 0; \
             UPDATE waybill.events SET correlation_id = NULL WHERE id % 9000 <> 0",
            "VACUUM waybill.events",
            "VACUUM waybill.deliveries",
        ],
    ),
    (
        "both tables are as empty as at the last analysis",
        &["CREATE TEMP TABLE e AS TABLE waybill.events; CREATE TEMP TABLE d AS TABLE waybill.deliveries; \
           TRUNCATE waybill.events, waybill.deliveries; ANALYZE waybill.events, waybill.deliveries; \
           INSERT INTO waybill.events TABLE e ORDER BY id; INSERT INTO waybill.deliveries TABLE d ORDER BY id"],
    ),
];

#[tokio::test(flavor = "multi_thread")]
async fn lists_cost_the_same_whatever_the_planner_believes() {
    let app = with_history(60_000).await;
    analyze(&app).await;
    let told_the_truth = costs(&app).await;
    for (lie, statements) in WRONG_STATISTICS {
        analyze(&app).await;
        for statement in statements {
            database::execute(&app.url, statement).await;
        }
        for ((name, truth), (_, lied_to)) in told_the_truth.iter().zip(costs(&app).await) {
            assert!(lied_to <= truth * 2, "{name}: {lied_to} buffers if {lie}, {truth} otherwise");
        }
    }
}

/// Returns how many buffers of large values, which PostgreSQL stores outside of the rows, were read in
/// this transaction.
async fn large_value_buffers(conn: &mut AsyncPgConnection) -> QueryResult<i64> {
    let fetched = "sum(pg_stat_get_xact_blocks_fetched(reltoastrelid))::bigint";
    let tables = "oid IN ('waybill.events'::regclass, 'waybill.deliveries'::regclass)";
    diesel::select(sql::<BigInt>(&format!("(SELECT {fetched} FROM pg_class WHERE {tables})"))).get_result(conn).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_does_not_read_payloads_results_and_progress() {
    let app = with_history(100).await;
    let large = "json_build_array(repeat(md5(random()::text), 2000))";
    for update in ["events SET payload =", "deliveries SET result =", "deliveries SET progress ="] {
        // Stored as it is: compressed, such values would be small.
        let (table, column) = update.split_once(" SET ").expect("a table and a column");
        let column = column.trim_end_matches(" =");
        let sql =
            format!("ALTER TABLE waybill.{table} ALTER {column} SET STORAGE EXTERNAL; UPDATE waybill.{update} {large}");
        database::execute(&app.url, &sql).await;
    }
    let scope = Scope::new(NamespaceId::DEFAULT, None);
    let (buffers, _) = app
        .buffers_of(async |conn| {
            let found = list_events(conn, &scope, &EventFilter::default(), page(None, false), 0).await?;
            assert_eq!(found.events.len(), 20);
            large_value_buffers(conn).await
        })
        .await;
    assert_eq!(buffers, 0);
    let (buffers, _) = app
        .buffers_of(async |conn| {
            diesel::sql_query("SELECT sum(length(result::text)) FROM waybill.deliveries").execute(conn).await?;
            large_value_buffers(conn).await
        })
        .await;
    assert!(buffers > 0, "the values are where the test looks");
}

#[tokio::test(flavor = "multi_thread")]
async fn totals_in_a_long_history_are_exact_up_to_a_thousand() {
    let app = with_history(100_000).await;
    let total = async |filter: EventFilter| {
        let (found, _) = cost(&app, &filter, page(None, false)).await;
        (found.total, found.total_is_exact)
    };
    assert_eq!(total(EventFilter::default()).await, (1_000, false));
    assert_eq!(total(EventFilter { status: Some(Status::Failed), ..EventFilter::default() }).await, (20, true));
    assert_eq!(total(EventFilter { correlation_id: Some("story".into()), ..EventFilter::default() }).await, (11, true));
    assert_eq!(total(EventFilter { tags: vec!["bulk".into()], ..EventFilter::default() }).await, (1_000, false));
}

/// The statistics do not tell the planner which of two correlation ids has many events, or which
/// failures are pushes.
#[tokio::test(flavor = "multi_thread")]
async fn a_few_failures_and_a_rare_correlation_id_are_found_cheaply_among_many_events() {
    let app = with_history(60_000).await;
    let others = "UPDATE waybill.events SET correlation_id = 'a long story' WHERE correlation_id IS NULL; \
         INSERT INTO waybill.deliveries (id, event_id, subscription_id, status, listed_status, priority, max_retries) \
             SELECT -n, n, 7, 'FAILED', 'FAILED', 0, 1 FROM generate_series(1, 50000) AS n";
    database::execute(&app.url, others).await;
    analyze(&app).await;
    for (name, expected) in [("failed", 12), ("correlation", 6)] {
        let (_, filter) = filters().into_iter().find(|(other, _)| *other == name).expect("a filter");
        for descending in [false, true] {
            let (found, buffers) = cost(&app, &filter, page(None, descending)).await;
            assert_eq!((found.events.len(), found.total), (expected, expected as i64), "{name}");
            assert!(buffers < 150, "{name}, descending: {descending}: {buffers} buffers");
        }
    }
}
