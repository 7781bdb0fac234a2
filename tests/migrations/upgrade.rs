//! Rehearses an upgrade: servers of the first release go on while the schema becomes the newest one.
//!
//! `first_release/` has the statements of the first release by which events are published, to workers and subscribers,
//! claimed, failed and completed. They never change. They stand for a server that is not upgraded yet.

use std::time::Duration;

use diesel::migration::{Migration, MigrationSource};
use diesel::pg::Pg;
use diesel::{QueryableByName, sql_query};
use diesel_async::{AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};
use serde_json::json;
use tokio_util::sync::CancellationToken;
use waybill::store::connection::connect::connect;
use waybill::store::connection::database::SETUP;
use waybill::store::connection::migrate::{MIGRATIONS, migrate, migrate_from};
use waybill::store::statement::{numbered, parameter_types};

use super::outside::later_migrations;
use crate::support::work::W1;
use crate::support::{App, Options, database, ledger};

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

    /// Publishes and claims a batch of events. Completes them, except for those that it fails once. Returns the number of
    /// completed events.
    async fn run(&mut self) -> usize {
        let [titles, tags, zeros, threes] = ["a job", "old", "0", "3"].map(|value| array(value, BATCH));
        let publish = format!(
            "EXECUTE publish(1, NULL, {titles}, NULL, NULL, {tags}, NULL, NULL, {zeros}, {threes}, NULL, NULL, NULL, NULL, \
             NULL, NULL, NULL, NULL, 0)"
        );
        self.execute(&publish).await;
        self.push_one().await;
        let claim = format!(
            "EXECUTE claim(1, '{{t:old}}', {BATCH}, '{{{BATCH}}}', {}, {}, NULL, '{{-32768}}', '{{0}}', NULL, NULL, NULL, \
             16777216, 4096)",
            array("host:1", BATCH),
            array("300", BATCH)
        );
        let claimed: Vec<Claimed> = sql_query(claim).load(&mut self.conn).await.expect("a claim");
        let of_claimed = |row: Claimed| Some((row.claimed_id?, row.lease_id?, row.retry_count?));
        let claimed: Vec<(i64, i64, i32)> = claimed.into_iter().filter_map(of_claimed).collect();
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

async fn until_completed(url: &str, wanted: i64) {
    let completed = "SELECT count(*) FROM waybill.deliveries WHERE status = 'COMPLETED'";
    let waiting = async { while database::count(url, completed).await < wanted {} };
    tokio::time::timeout(Duration::from_secs(60), waiting).await.expect("old servers complete events");
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_of_the_first_release_go_on_while_the_schema_is_upgraded() {
    let url = database::empty().await;
    migrate_from(&url, || FirstRelease).await.expect("the schema of the first release");
    // The statements below publish under this generation of the catalog.
    let prepare = format!(
        "SELECT waybill.enforce_rules(true); UPDATE waybill.subscription_catalog SET generation = 0; \
         INSERT INTO waybill.subscriptions (id, url, spec) VALUES ({SUBSCRIPTION}, 'http://127.0.0.1:9/', '{{}}')"
    );
    database::execute(&url, &prepare).await;
    let is_over = CancellationToken::new();
    let servers = old_servers(&url, &is_over);
    until_completed(&url, 100).await;
    migrate(&url).await.expect("the newest schema");
    let later = migrate_from(&url, later_migrations).await.expect("what later releases may do");
    assert_eq!(later.len(), 3);
    let before = database::count(&url, "SELECT count(*) FROM waybill.events").await;
    until_completed(&url, before + 100).await;
    is_over.cancel();
    let completed: usize = servers.join_all().await.into_iter().sum();
    let rows = "SELECT count(*) FROM waybill.deliveries WHERE status = 'COMPLETED'";
    assert_eq!(database::count(&url, rows).await, completed as i64);
    let lines = "SELECT count(*) FROM waybill.event_log WHERE action = 'COMPLETED'";
    assert_eq!(database::count(&url, lines).await, completed as i64);
    assert!(database::count(&url, "SELECT count(*) FROM waybill.event_log WHERE action = 'FAILED'").await > 0);
    let pushes = "SELECT count(*) FROM waybill.deliveries WHERE subscription_id IS NOT NULL AND status = 'PENDING'";
    assert!(database::count(&url, pushes).await > 0);
    // Nobody is to receive them.
    database::execute(&url, "UPDATE waybill.subscriptions SET is_active = false").await;

    // A server of this release takes over.
    let app = App::start_with(Options { url: Some(url.clone()), ..Options::default() }).await;
    let id = app.publish(json!({"title": "t", "tags": "old"})).await;
    while app.claim("old", W1).await.is_some_and(|event| event["id"] != id) {}
    app.complete(id, W1).await.expect(200);
    ledger::check(&app).await;
}
