//! How many statements a push costs, alone and among many.

use serde_json::json;
use waybill::store::connection::migrate::migrate;

use super::statements::{counting_cluster, runs};
use crate::support::receiver::{Gate, Receiver, Reply};
use crate::support::{App, ClusterDir, Options, database, until};

/// The statements of a push: stored with its event, checked for, claimed, and recorded.
const STATEMENTS: [&str; 4] =
    ["-- publish_and_fan_out", "-- read_endpoint_gates", "-- claim_deliveries", "-- complete_deliveries"];

/// The documented number of statements of one delivered event, and of each of many.
const MOST_ALONE: i64 = 6;
const MOST_AMONG_MANY: f64 = 1.0;

/// The number of events that count as many.
const MANY: i64 = 200;

async fn statements(app: &App) -> i64 {
    let mut sum = 0;
    for words in STATEMENTS {
        sum += runs(app, words).await;
    }
    sum
}

async fn until_completed(app: &App, count: i64) {
    let completed = "SELECT count(*) FROM waybill.deliveries WHERE subscription_id IS NULL AND status = 'COMPLETED'";
    until("everything was delivered", async || app.count(completed).await == count).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_costs_a_handful_of_statements_alone_and_less_than_one_among_many() {
    let cluster_dir = ClusterDir::new();
    let cluster = tokio::task::block_in_place(|| counting_cluster(&cluster_dir.data_dir()));
    let url = cluster.url("postgres");
    migrate(&url).await.expect("the migrations run");
    database::execute(&url, "CREATE EXTENSION pg_stat_statements").await;
    let flags = ["--poll-interval-ms", "60000"].map(str::to_owned).to_vec();
    let app = App::start_with(Options { url: Some(url), flags, ..Options::default() }).await;
    let receiver = Receiver::start().await;
    app.subscribe(&receiver.url("/"), json!({"max_concurrency": 100})).await;
    let event = json!({"event_type": "counted", "payload": 1});

    let before = statements(&app).await;
    app.publish(event.clone()).await;
    until_completed(&app, 1).await;
    let alone = statements(&app).await - before;
    assert!((4..=MOST_ALONE).contains(&alone), "{alone} statements");

    // Publishers call at once, and the receiver answers all requests at once.
    let gate = Gate::closed();
    receiver.always(Reply::ok().held_by(&gate));
    let before = statements(&app).await;
    let batch = json!({"events": vec![event; MANY as usize]});
    app.post("/events/batch", &batch).await.expect(201);
    receiver.until_in_flight(100).await;
    gate.open();
    until_completed(&app, 1 + MANY).await;
    let each = (statements(&app).await - before) as f64 / MANY as f64;
    println!("{alone} statements alone, {each:.2} each among {MANY}");
    assert!(each < MOST_AMONG_MANY, "{each} statements each");
    app.stop().await;
}
