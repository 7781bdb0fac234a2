//! One PostgreSQL cluster for the whole run, started by the code under test, and one database per
//! test, copied from a migrated template. The cluster ends with the test process.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use diesel_async::{AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};
use waybill::postgres::{Cluster, ClusterOptions};
use waybill::store::connection::connect::connect;
use waybill::store::connection::migrate::migrate;

const TEMPLATE: &str = "template_waybill";

static CLUSTER: OnceLock<Cluster> = OnceLock::new();
static TEMPLATE_READY: tokio::sync::OnceCell<()> = tokio::sync::OnceCell::const_new();
static NEXT: AtomicU32 = AtomicU32::new(1);

/// Returns the shared cluster. It is not durable: these tests kill servers, not machines.
pub(crate) fn cluster() -> &'static Cluster {
    CLUSTER.get_or_init(|| {
        let mut options = ClusterOptions::new(directory());
        // Databases stay until the end. The thousands of them would keep the autovacuum busy.
        let naps = ("autovacuum_naptime", "1h");
        // A database in which statements are counted says so itself.
        let counting = [("shared_preload_libraries", "pg_stat_statements"), ("pg_stat_statements.track", "none")];
        let sizes = [("fsync", "off"), ("max_connections", "500"), ("shared_buffers", "128MB"), naps];
        for (name, value) in sizes.into_iter().chain(counting) {
            options.settings.push((name.into(), value.into()));
        }
        Cluster::start(options).expect("PostgreSQL's server binaries are installed")
    })
}

/// Creates a migrated database and returns its URL.
pub(crate) async fn migrated() -> String {
    TEMPLATE_READY
        .get_or_init(|| async {
            execute(&admin_url().await, &format!("CREATE DATABASE {TEMPLATE}")).await;
            let url = cluster().url(TEMPLATE);
            migrate(&url).await.expect("the migrations run");
            execute(&url, "SELECT waybill.enforce_rules(true)").await;
        })
        .await;
    copy(TEMPLATE).await
}

/// Copies a database that nobody uses now, and returns the URL of the copy.
pub(crate) async fn copy_of(url: &str) -> String {
    copy(name_of(url)).await
}

async fn copy(template: &str) -> String {
    let url = create(&format!("TEMPLATE {template}")).await;
    // A copied database counts as restored, and its ids would start far ahead.
    let own = "database_oid = (SELECT oid FROM pg_database WHERE datname = current_database())";
    execute(&url, &format!("UPDATE waybill.histories SET {own}")).await;
    url
}

/// Creates an empty database and returns its URL.
pub(crate) async fn empty() -> String {
    create("").await
}

async fn create(how: &str) -> String {
    let name = format!("test_{}", NEXT.fetch_add(1, Ordering::Relaxed));
    execute(&admin_url().await, &format!("CREATE DATABASE {name} {how}")).await;
    cluster().url(&name)
}

async fn admin_url() -> String {
    tokio::task::spawn_blocking(|| cluster().url("postgres")).await.expect("the cluster starts")
}

/// Opens a connection for the test itself.
pub(crate) async fn connection(url: &str) -> AsyncPgConnection {
    connect(url, "").await.expect("the database answers")
}

/// Runs a query that returns one number.
pub(crate) async fn count(url: &str, sql: &str) -> i64 {
    #[derive(diesel::QueryableByName)]
    struct Row {
        #[diesel(sql_type = diesel::sql_types::BigInt)]
        n: i64,
    }
    let counting = diesel::sql_query(format!("SELECT ({sql})::bigint AS n"));
    let row: Row = counting.get_result(&mut connection(url).await).await.expect(sql);
    row.n
}

/// Runs statements that return no rows.
pub(crate) async fn execute(url: &str, sql: &str) {
    connection(url).await.batch_execute(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
}

/// Drops the database of a test under its server.
pub(crate) async fn drop_by_force(url: &str) {
    execute(&admin_url().await, &format!("DROP DATABASE {} WITH (FORCE)", name_of(url))).await;
}

fn name_of(url: &str) -> &str {
    url.split(['/', '?']).find(|part| part.starts_with("test_")).expect("a test's database")
}

/// Returns the directory for the files of this run. The next run removes it.
pub(crate) fn directory() -> &'static Path {
    static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();
    DIRECTORY.get_or_init(|| folder_of_this_run("waybill-tests-"))
}

/// Returns the path of a folder for this process, and removes those of processes that have ended.
pub(crate) fn folder_of_this_run(prefix: &str) -> PathBuf {
    remove_leftovers(prefix);
    std::env::temp_dir().join(format!("{prefix}{}", std::process::id()))
}

/// Removes the folders of test runs whose process has ended.
fn remove_leftovers(prefix: &str) {
    let Ok(entries) = std::fs::read_dir(std::env::temp_dir()) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some(pid) = name.strip_prefix(prefix) else { continue };
        if !Path::new("/proc").join(pid).exists() {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}
