//! How many statements many concurrent calls cost: batched calls share one.

use std::path::Path;

use futures_util::future::join_all;
use serde_json::{Value, json};
use waybill::engine::Queued;
use waybill::postgres::{Cluster, ClusterOptions};
use waybill::store::connection::migrate::migrate;

use crate::support::{App, ClusterDir, HeldTable, Options, database, until};

/// The number of concurrent callers.
pub(super) const CALLERS: usize = 64;

/// Statements of one verb for all callers: one for each call that left ahead, and one for the
/// others.
pub(super) const MOST_STATEMENTS: i64 = 3;

/// Starts a PostgreSQL that counts statements.
pub(super) fn counting_cluster(data_dir: &Path) -> Cluster {
    let mut options = ClusterOptions::new(data_dir);
    options.settings.push(("shared_preload_libraries".into(), "pg_stat_statements".into()));
    Cluster::start(options).expect("the cluster starts")
}

/// Returns how often the statement that begins with these words was run.
pub(super) async fn runs(app: &App, words: &str) -> i64 {
    app.count(&format!("SELECT coalesce(sum(calls), 0) FROM pg_stat_statements WHERE query LIKE '{words}%'")).await
}

/// Makes a call for each caller while `table` is locked. The first calls fill the batcher with one
/// batch each; the others are all queued before any statement runs.
pub(super) async fn at_once<F: Future<Output = Value>>(
    app: &App,
    table: &str,
    width: usize,
    queued: fn(Queued) -> usize,
    call: impl Fn(usize) -> F,
) -> Vec<Value> {
    let mut held = HeldTable::lock(&app.url, table).await;
    let (open, door) = tokio::sync::watch::channel(0);
    let calls = (0..CALLERS).map(|number| {
        let (mut door, call) = (door.clone(), &call);
        async move {
            door.wait_for(|open| number < *open).await.expect("the callers may start");
            call(number).await
        }
    });
    let gather = async {
        for ahead in 1..=width {
            open.send(ahead).expect("callers wait");
            held.until_blocked_statements(ahead).await;
        }
        open.send(CALLERS).expect("callers wait");
        until("the calls are queued", async || queued(app.engine().queued()) == CALLERS - width).await;
        held.unlock().await;
    };
    let (answers, ()) = tokio::join!(join_all(calls), gather);
    answers
}

/// Starts a server on a PostgreSQL that counts statements.
async fn counting_app(cluster: &Cluster) -> App {
    let url = cluster.url("postgres");
    migrate(&url).await.expect("the migrations run");
    database::execute(&url, "CREATE EXTENSION pg_stat_statements").await;
    App::start_with(Options { url: Some(url), ..Options::default() }).await
}

#[tokio::test(flavor = "multi_thread")]
async fn sixty_four_concurrent_calls_share_a_few_statements() {
    let cluster_dir = ClusterDir::new();
    let cluster = tokio::task::block_in_place(|| counting_cluster(&cluster_dir.data_dir()));
    let app = counting_app(&cluster).await;

    let publish = async |_| app.post("/events", &json!({"title": "a job", "tags": "a"})).await.expect(201).json();
    at_once(&app, "waybill.events", 2, |queued| queued.publish, publish).await;
    let claim = async |n: usize| app.claim("a", &format!("host:{n}")).await.expect("an event");
    let claimed = at_once(&app, "waybill.deliveries", 1, |queued| queued.claim, claim).await;
    let complete = async |n: usize| {
        let body = json!({"worker_id": format!("host:{n}"), "lease_id": claimed[n]["lease_id"]});
        app.post(&format!("/events/{}/complete", claimed[n]["id"]), &body).await.expect(200).json()
    };
    at_once(&app, "waybill.event_log", 2, |queued| queued.settle, complete).await;

    assert_eq!(app.count("SELECT count(*) FROM waybill.deliveries WHERE status = 'COMPLETED'").await, CALLERS as i64);
    for words in ["-- publish_events", "-- claim_deliveries", "-- complete_deliveries"] {
        let runs = runs(&app, words).await;
        assert!((1..=MOST_STATEMENTS).contains(&runs), "{runs} statements: {words}");
    }
    app.stop().await;
}

/// Keys need no statement of their own, whether they are new or known.
#[tokio::test(flavor = "multi_thread")]
async fn sixty_four_concurrent_publishes_with_keys_share_a_few_statements() {
    let cluster_dir = ClusterDir::new();
    let cluster = tokio::task::block_in_place(|| counting_cluster(&cluster_dir.data_dir()));
    let app = counting_app(&cluster).await;
    let publish = async |n: usize| {
        let event = json!({"title": "a job", "tags": "a", "idempotency_key": format!("k{n}")});
        app.post("/events", &event).await.json()
    };
    let first = at_once(&app, "waybill.events", 2, |queued| queued.publish, publish).await;
    let publishes = runs(&app, "-- publish_keyed_events").await;
    assert!((1..=MOST_STATEMENTS).contains(&publishes), "{publishes} statements");
    assert_eq!(runs(&app, "%INSERT INTO waybill.idempotency_keys").await, publishes, "no other statement stores keys");
    let again = at_once(&app, "waybill.events", 2, |queued| queued.publish, publish).await;
    assert!(again.iter().zip(&first).all(|(again, first)| again["id"] == first["id"] && again["repeated"] == true));
    // The first batches expect new keys, and are tried again.
    let looked_up = runs(&app, "-- publish_and_fan_out").await;
    assert!((1..=MOST_STATEMENTS).contains(&looked_up), "{looked_up} statements");
    assert!(runs(&app, "-- publish_keyed_events").await - publishes <= MOST_STATEMENTS);
    app.stop().await;
}
