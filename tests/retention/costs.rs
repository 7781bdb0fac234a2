//! What claims cost while a million events are removed, in buffers, and how removal is planned.

use diesel::sql_types::Json;
use diesel::{QueryableByName, sql_query};
use diesel_async::{RunQueryDsl, SimpleAsyncConnection};
use serde_json::Value;
use waybill::background::retention::events::run_once;
use waybill::domain::ids::NamespaceId;
use waybill::domain::retention::Retention;
use waybill::store::connection::connect::connect;
use waybill::store::connection::database::SETUP;
use waybill::store::retention::events::{REMOVE_EVENTS, REMOVE_PUSHES};
use waybill::store::tables::claims::{ClaimGroup, ClaimQuery, ClaimQueue, claim_deliveries};

use super::old_events;
use crate::support::{App, database};

/// The number of buffers by which the medians may differ: a page more at the end of the log, a level of an index
/// that has become lower, the versions that claims have left which were rolled back.
const MOST_DIFFERENCE: i64 = 8;

/// Claims an event of the tag `mine` and rolls back. Returns the buffers that were read.
async fn cost_of_claim(app: &App) -> i64 {
    let group = ClaimGroup {
        namespace: NamespaceId::DEFAULT,
        queues: vec![ClaimQueue { name: "t:mine", from: (i16::MIN, 0), window: 1, pushes: None }],
        worker_ids: vec!["w:1"],
        lease_seconds: vec![60.0],
    };
    let query = ClaimQuery { now: app.engine().now(), groups: &[group], max_bytes: i64::MAX };
    let (claimed, buffers) = app.buffers_of(async |conn| claim_deliveries(conn, &query).await).await;
    assert_eq!(claimed[0].events.len(), 1);
    buffers
}

/// Returns the median: the first claim on a connection also reads the catalog entries of its tables.
fn median(mut costs: Vec<i64>) -> i64 {
    costs.sort_unstable();
    costs[costs.len() / 2]
}

async fn median_cost(app: &App) -> i64 {
    let mut costs = Vec::new();
    for _ in 0..9 {
        costs.push(cost_of_claim(app).await);
    }
    median(costs)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_costs_the_same_before_during_and_after_a_million_events_are_removed() {
    let app = App::with_fixed_clock().await;
    for _ in 0..4 {
        database::execute(&app.url, &old_events(250_000)).await;
    }
    for _ in 0..20 {
        app.publish_tagged("mine").await;
    }
    let before = median_cost(&app).await;
    let engine = app.engine().clone();
    let removal = tokio::spawn(async move { run_once(&engine, Retention::Seconds(3_600)).await.expect("a round") });
    let mut during = Vec::new();
    while !removal.is_finished() {
        during.push(cost_of_claim(&app).await);
    }
    assert_eq!(removal.await.expect("no panic")["events"], 1_000_000);
    assert_eq!(app.count("SELECT count(*) FROM waybill.events").await, 20);
    assert!(during.len() > 20, "claims went on");
    let (during, after) = (median(during), median_cost(&app).await);
    println!("before {before}, during {during}, after {after}");
    for cost in [during, after] {
        assert!((cost - before).abs() <= MOST_DIFFERENCE, "{cost} buffers, {before} before");
    }
}

/// Returns the plans of the statements that remove events, without costs.
async fn plans(url: &str) -> Vec<Value> {
    let mut conn = connect(url, SETUP).await.expect("the database answers");
    let mut plans = Vec::new();
    for (statement, values) in [(REMOVE_EVENTS, "1, NULL, 60, 0, 60, 100, 60"), (REMOVE_PUSHES, "1, NULL, 60, 1, 100")]
    {
        let sql = statement.sql.split_once('\n').expect("a name, then the statement").1;
        conn.batch_execute(&format!("PREPARE removal({}) AS {sql}", statement.types())).await.expect("a statement");
        let explain = sql_query(format!("EXPLAIN (COSTS OFF, FORMAT JSON) EXECUTE removal({values})"));
        plans.push(explain.get_result::<Plan>(&mut conn).await.expect("a plan").plan);
        conn.batch_execute("DEALLOCATE removal").await.expect("room for the next");
    }
    plans
}

#[derive(QueryableByName)]
struct Plan {
    #[diesel(sql_type = Json, column_name = "QUERY PLAN")]
    plan: Value,
}

#[tokio::test(flavor = "multi_thread")]
async fn removal_has_the_same_plan_on_empty_full_drained_and_huge_tables() {
    let app = App::with_fixed_clock().await;
    let analyze = "ANALYZE waybill.events, waybill.deliveries, waybill.event_tags";
    database::execute(&app.url, analyze).await;
    let empty = plans(&app.url).await;
    database::execute(&app.url, &old_events(20_000)).await;
    assert_eq!(plans(&app.url).await, empty, "full, with the statistics of empty tables");
    database::execute(&app.url, analyze).await;
    assert_eq!(plans(&app.url).await, empty, "full");
    run_once(app.engine(), Retention::Seconds(3_600)).await.expect("a round");
    assert_eq!(plans(&app.url).await, empty, "drained, with the statistics of full tables");
    let huge = "UPDATE pg_class SET reltuples = 1e9, relpages = 30000000 \
                WHERE relnamespace = 'waybill'::regnamespace AND relkind IN ('r', 'i')";
    database::execute(&app.url, huge).await;
    assert_eq!(plans(&app.url).await, empty, "huge");
}
