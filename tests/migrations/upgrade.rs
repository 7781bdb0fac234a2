//! Rehearses an upgrade: servers of the first release go on while the schema becomes the newest one, and then beside a
//! server of this release.
//!
//! `first_release/` has the statements of the first release by which events are published, to workers and subscribers,
//! claimed, started, failed and completed. They never change. They stand for a server that is not upgraded yet.

use std::sync::Arc;
use std::time::Duration;

use diesel::migration::{Migration, MigrationSource};
use diesel::pg::Pg;
use diesel::{QueryableByName, sql_query};
use diesel_async::{AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use waybill::store::connection::connect::connect;
use waybill::store::connection::database::SETUP;
use waybill::store::connection::migrate::{MIGRATIONS, migrate, migrate_from};
use waybill::store::statement::{numbered, parameter_types};

use super::outside::later_migrations;
use crate::support::receiver::Receiver;
use crate::support::work::{Claim, Naming, W1, W2};
use crate::support::{App, Options, database, ledger, until};

/// The last migration of the first release.
const FIRST_RELEASE: &str = "20261117000011";

const STATEMENTS: [(&str, &str); 7] = [
    ("publish", include_str!("first_release/publish_events.sql")),
    ("fan_out", include_str!("first_release/publish_and_fan_out.sql")),
    ("claim", include_str!("first_release/claim_deliveries.sql")),
    ("complete", include_str!("first_release/complete_deliveries.sql")),
    ("load", include_str!("first_release/load_deliveries.sql")),
    ("save", include_str!("first_release/save_deliveries.sql")),
    ("append", include_str!("first_release/append_log.sql")),
];

/// The migrations of the first release.
struct FirstRelease;

impl MigrationSource<Pg> for FirstRelease {
    fn migrations(&self) -> diesel::migration::Result<Vec<Box<dyn Migration<Pg>>>> {
        let mut all: Vec<Box<dyn Migration<Pg>>> = MIGRATIONS.migrations()?;
        all.retain(|migration| migration.name().version().to_string().as_str() <= FIRST_RELEASE);
        Ok(all)
    }
}

/// A server of the first release, as far as its statements are concerned.
struct OldServer {
    conn: AsyncPgConnection,
}

#[derive(QueryableByName)]
struct Claimed {
    #[diesel(sql_type = diesel::sql_types::Nullable<diesel::sql_types::BigInt>)]
    claimed_id: Option<i64>,
    #[diesel(sql_type = diesel::sql_types::Nullable<diesel::sql_types::BigInt>)]
    lease_id: Option<i64>,
    #[diesel(sql_type = diesel::sql_types::Nullable<diesel::sql_types::Integer>)]
    retry_count: Option<i32>,
}

/// A subscription of the old server.
const SUBSCRIPTION: i64 = 1;

/// The number of events in a batch of the old server.
const BATCH: usize = 5;

/// The part of the events that fail at their first attempt: one in so many.
const FAILED_PART: i64 = 7;

fn array(value: &str, count: usize) -> String {
    format!("'{{{}}}'", vec![value; count].join(","))
}

impl OldServer {
    async fn start(url: &str) -> Self {
        let mut conn = connect(url, SETUP).await.expect("the database answers");
        for (name, source) in STATEMENTS {
            let prepare = format!("PREPARE {name} ({}) AS {}", parameter_types(source), numbered(source));
            conn.batch_execute(&prepare).await.expect(name);
        }
        OldServer { conn }
    }

    /// Publishes, claims and starts a batch of events. Completes them, except for those that it fails once. Returns the
    /// number of completed events.
    async fn run(&mut self) -> usize {
        let [titles, tags, zeros, threes] = ["a job", "old", "0", "3"].map(|value| array(value, BATCH));
        let publish = format!(
            "EXECUTE publish(1, NULL, {titles}, NULL, NULL, {tags}, NULL, NULL, {zeros}, {threes}, NULL, NULL, NULL, NULL, \
             NULL, NULL, NULL, NULL, 0)"
        );
        self.execute(&publish).await;
        self.push_one().await;
        self.send_one().await;
        let claim = format!(
            "EXECUTE claim(1, '{{t:old}}', {BATCH}, '{{{BATCH}}}', {}, {}, NULL, '{{-32768}}', '{{0}}', NULL, NULL, NULL, \
             16777216, 4096)",
            array("host:1", BATCH),
            array("300", BATCH)
        );
        let claimed = self.claim(&claim).await;
        if let Some((id, lease, failures)) = claimed.as_slice().first() {
            self.start_one(*id, *lease, *failures).await;
        }
        // One in so many, of those that have not failed yet.
        let is_failed = |(id, _, failures): &(i64, i64, i32)| *failures == 0 && id % FAILED_PART == 0;
        let (failed, completed): (Vec<_>, Vec<_>) = claimed.into_iter().partition(is_failed);
        for (id, lease, _) in failed {
            self.fail(id, lease).await;
        }
        let (ids, leases): (Vec<String>, Vec<String>) =
            completed.into_iter().map(|(id, lease, _)| (id.to_string(), lease.to_string())).unzip();
        let complete = format!(
            "EXECUTE complete(1, NULL, '{{{}}}', '{{{}}}', {}, NULL, NULL, NULL, NULL, NULL)",
            ids.join(","),
            leases.join(","),
            array("host:1", ids.len())
        );
        self.execute(&complete).await;
        ids.len()
    }

    /// Publishes an event to the subscription.
    async fn push_one(&mut self) {
        let push = format!(
            "EXECUTE fan_out(1, NULL, '{{an order}}', NULL, '{{order.paid}}', '{{\"\"}}', NULL, NULL, '{{0}}', '{{3}}', NULL, \
             NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, '{{{SUBSCRIPTION}}}', '{{1}}', '{{1}}', '{{1}}', \
             '{{{SUBSCRIPTION}}}', '{{1}}', '{{NULL}}')"
        );
        self.execute(&push).await;
    }

    /// Claims a push and records that it was sent, unless others have claimed them all.
    async fn send_one(&mut self) {
        let claim = format!(
            "EXECUTE claim(1, '{{s:{SUBSCRIPTION}}}', 1, '{{1}}', '{{old:1}}', '{{NULL}}', NULL, '{{-32768}}', '{{0}}', '{{60}}', \
             '{{{SUBSCRIPTION}}}', '{{1}}', 16777216, 4096)"
        );
        for (id, lease, _) in self.claim(&claim).await {
            let complete = format!(
                "EXECUTE complete(1, NULL, '{{{id}}}', '{{{lease}}}', '{{old:1}}', '{{200}}', '{{12}}', NULL, NULL, '{{1}}')"
            );
            self.execute(&complete).await;
        }
    }

    /// Returns the ids, leases and failures of what a statement claims.
    async fn claim(&mut self, statement: &str) -> Vec<(i64, i64, i32)> {
        let claimed: Vec<Claimed> = sql_query(statement).load(&mut self.conn).await.expect("a claim");
        let of_claimed = |row: Claimed| Some((row.claimed_id?, row.lease_id?, row.retry_count?));
        claimed.into_iter().filter_map(of_claimed).collect()
    }

    /// Records that a worker has started, and its progress.
    async fn start_one(&mut self, id: i64, lease: i64, failures: i32) {
        let attempt = failures + 1;
        let start = format!(
            "BEGIN; EXECUTE load(1, '{{{id}}}', NULL); \
             EXECUTE save(1, NULL, '{{{id}}}', '{{PROCESSING}}', '{{{failures}}}', '{{0}}', '{{host:1}}', \
             ARRAY[now() + interval '10 minutes'], '{{f}}', '{{f}}', '{{NULL}}', '{{NULL}}', '{{f}}', '{{f}}', ARRAY[now()], \
             '{{NULL}}', '{{NULL}}', '{{50}}', '{{NULL}}', '{{NULL}}', '{{3}}', '{{NULL}}'); \
             EXECUTE append(1, NULL, '{{{id}}}', '{{{id}}}', '{{STARTED}}', '{{host:1}}', '{{{lease}}}', '{{{attempt}}}', NULL, \
             NULL, NULL, NULL, NULL, NULL, NULL, NULL); COMMIT"
        );
        self.execute(&start).await;
    }

    /// Fails an event at its first attempt. It can be claimed again at once.
    async fn fail(&mut self, id: i64, lease: i64) {
        let fail = format!(
            "BEGIN; EXECUTE load(1, '{{{id}}}', NULL); \
             EXECUTE save(1, NULL, '{{{id}}}', '{{PENDING}}', '{{1}}', '{{0}}', '{{host:1}}', '{{NULL}}', '{{f}}', '{{t}}', \
             '{{NULL}}', '{{NULL}}', '{{f}}', '{{f}}', '{{NULL}}', '{{{lease}}}', '{{FAILED}}', '{{NULL}}', '{{NULL}}', \
             '{{NULL}}', '{{3}}', '{{NULL}}'); \
             EXECUTE append(1, NULL, '{{{id}}}', '{{{id}}}', '{{FAILED}}', '{{host:1}}', '{{{lease}}}', '{{1}}', NULL, NULL, \
             NULL, NULL, ARRAY[now()], NULL, NULL, NULL); COMMIT"
        );
        self.execute(&fail).await;
    }

    async fn execute(&mut self, sql: &str) {
        self.conn.batch_execute(sql).await.expect(sql);
    }
}

/// Runs old servers until `is_over`. Returns the number of events that each has completed.
fn old_servers(url: &str, is_over: &CancellationToken) -> tokio::task::JoinSet<usize> {
    let mut servers = tokio::task::JoinSet::new();
    for _ in 0..2 {
        let (url, is_over) = (url.to_owned(), is_over.clone());
        servers.spawn(async move {
            let mut server = OldServer::start(&url).await;
            let mut completed = 0;
            while !is_over.is_cancelled() {
                completed += server.run().await;
            }
            completed
        });
    }
    servers
}

/// Calls a server of this release until `is_over`, as clients that share the work with those of the old servers. Returns
/// the number of events that they have completed.
fn new_clients(app: &Arc<App>, is_over: &CancellationToken) -> tokio::task::JoinSet<usize> {
    let mut clients = tokio::task::JoinSet::new();
    for worker in [W1, W2] {
        let (app, is_over) = (app.clone(), is_over.clone());
        clients.spawn(async move {
            let mut completed = 0;
            while !is_over.is_cancelled() {
                completed += work_once(&app, worker).await;
                for list in [
                    "/events?status=PROCESSING",
                    "/events?tags=old&order=desc",
                    "/deliveries",
                    "/logs?order=desc",
                    "/stats",
                ] {
                    app.get(list).await.expect(200);
                }
            }
            completed
        });
    }
    clients
}

/// Publishes, claims, starts and completes a batch of events, except for those that it fails once. Returns the number of
/// completed events.
async fn work_once(app: &App, worker: &str) -> usize {
    let mut batch = vec![json!({"title": "a job", "tags": "old"}); BATCH];
    batch.push(json!({"event_type": "order.paid", "payload": ""}));
    app.post("/events/batch", &json!({"events": batch})).await.expect(201);
    let claimed = app.claim_batch("old", worker, BATCH).await;
    for claim in claimed.iter().take(1).map(Claim::of) {
        app.settle(&claim, "start", Naming::Lease).await.expect(200);
        app.settle_with(&claim, "heartbeat", json!({"progress": 50})).await.expect(200);
    }
    let is_failed =
        |event: &Value| event["retry_count"] == 0 && event["id"].as_i64().expect("an id") % FAILED_PART == 0;
    let action = |event: &Value| if is_failed(event) { "fail" } else { "complete" };
    let settlements: Vec<Value> =
        claimed.iter().map(|event| Claim::of(event).settlement(action(event), json!({}))).collect();
    let results = app.settle_batch(worker, &settlements).await;
    assert!(results.iter().all(|result| result["accepted"] == true), "{results:?}");
    claimed.iter().filter(|event| !is_failed(event)).count()
}

/// The events that workers have completed.
const COMPLETED: &str = "SELECT count(*) FROM waybill.deliveries WHERE status = 'COMPLETED' AND subscription_id IS NULL AND open_deliveries IS NULL";

async fn until_completed(url: &str, wanted: i64) {
    let waiting = async { while database::count(url, COMPLETED).await < wanted {} };
    tokio::time::timeout(Duration::from_secs(60), waiting).await.expect("the servers complete events");
}

/// Waits until both old and new servers have completed this many more.
async fn until_both_have_completed(url: &str, wanted: i64) {
    for is_old in ["= 'host:1'", "<> 'host:1'"] {
        let more = format!("{COMPLETED} AND worker_id {is_old}");
        let before = database::count(url, &more).await;
        let waiting = async { while database::count(url, &more).await < before + wanted {} };
        tokio::time::timeout(Duration::from_secs(60), waiting).await.expect("both complete events");
    }
}

/// The old servers send a push at a time, and the new one sends the others.
async fn until_sent(app: &App) {
    let open = "SELECT count(*) FROM waybill.deliveries WHERE subscription_id IS NOT NULL AND status <> 'COMPLETED'";
    until("all pushes were sent", async || app.count(open).await == 0).await;
}

/// Creates the schema of the first release, with a subscription to `receiver_url`.
async fn first_release(receiver_url: &str) -> String {
    let url = database::empty().await;
    migrate_from(&url, || FirstRelease).await.expect("the schema of the first release");
    let spec = json!({"url": receiver_url, "event_types": ["order.paid"]});
    // The old statements publish under this generation of the catalog.
    let prepare = format!(
        "SELECT waybill.enforce_rules(true); UPDATE waybill.subscription_catalog SET generation = 0; \
         INSERT INTO waybill.subscriptions (id, url, spec) VALUES ({SUBSCRIPTION}, '{receiver_url}', '{spec}'); \
         INSERT INTO waybill.subscription_secrets (subscription_id, secret) \
             VALUES ({SUBSCRIPTION}, 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw')"
    );
    database::execute(&url, &prepare).await;
    url
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_of_the_first_release_go_on_during_the_upgrade_and_beside_a_server_of_this_release() {
    let receiver = Receiver::start().await;
    let url = first_release(&receiver.url("/")).await;
    let is_over = CancellationToken::new();
    let servers = old_servers(&url, &is_over);
    until_completed(&url, 100).await;
    migrate(&url).await.expect("the newest schema");

    let app = Arc::new(App::start_with(Options { url: Some(url.clone()), ..Options::default() }).await);
    let clients = new_clients(&app, &is_over);
    until_both_have_completed(&url, 100).await;
    let later = migrate_from(&url, later_migrations).await.expect("what later releases may do");
    assert_eq!(later.len(), 3);
    until_both_have_completed(&url, 100).await;
    is_over.cancel();
    let of_old: usize = servers.join_all().await.into_iter().sum();
    let of_new: usize = clients.join_all().await.into_iter().sum();

    let completed = (of_old + of_new) as i64;
    assert_eq!(app.count(COMPLETED).await, completed);
    let lines = "SELECT count(*) FROM waybill.event_log WHERE action = 'COMPLETED' AND delivery_id IS NULL";
    assert_eq!(app.count(lines).await, completed);
    until_sent(&app).await;
    for action in ["FAILED", "STARTED"] {
        let by_both = format!(
            "SELECT count(DISTINCT worker_id) FROM waybill.event_log WHERE action = '{action}' AND delivery_id IS NULL"
        );
        assert_eq!(app.count(&by_both).await, 3, "{action} by two workers of the new server and one of the old ones");
    }
    let by_old = "SELECT count(*) FROM waybill.event_log WHERE action = 'COMPLETED' AND worker_id = 'old:1'";
    assert!(app.count(by_old).await > 0, "the old servers send, too");
    assert!(!receiver.so_far().is_empty(), "the new server sends");
    ledger::check(&app).await;
}
