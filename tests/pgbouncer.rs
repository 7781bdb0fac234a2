//! Behind a real PgBouncer: what `docs/operations.md` promises.
//!
//! `scripts/prepare` installs one; `WAYBILL_TEST_PGBOUNCER` names another.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use diesel_async::RunQueryDsl;
use futures_util::future::join_all;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio_postgres::config::Host;

use crate::support::work::{Claim, Naming};
use crate::support::{App, Options, database, ledger, until};

/// The settings that `docs/operations.md` requires of PgBouncer where connections are shared.
const CONNECT_QUERY: &str = "SET synchronous_commit = on; SET default_transaction_isolation = ''read committed''; \
     SET statement_timeout = ''4s''; SET idle_in_transaction_session_timeout = ''15s''; SET lock_timeout = ''4s''; \
     SET jit = off; SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_hashjoin = off; \
     SET enable_mergejoin = off; SET enable_memoize = off; SET plan_cache_mode = force_generic_plan";

/// A PgBouncer in front of the shared cluster, reached through a socket in its own folder. It ends
/// when it is dropped, and with this process at the latest.
struct PgBouncer {
    shell: Child,
    folder: TempDir,
}

fn program() -> PathBuf {
    let named = std::env::var_os("WAYBILL_TEST_PGBOUNCER").map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let usual = std::env::split_paths(&path).chain(["/usr/sbin".into()]).map(|folder| folder.join("pgbouncer"));
    named.into_iter().chain(usual).find(|file| file.exists()).expect("PgBouncer is installed: see scripts/prepare")
}

/// Returns whether this PgBouncer supports named prepared statements across connections.
fn supports_prepared_statements() -> bool {
    let output = Command::new(program()).arg("--version").output().expect("it runs").stdout;
    let text = String::from_utf8(output).expect("text");
    let version = text.lines().next().and_then(|line| line.strip_prefix("PgBouncer ")).expect("its version");
    let numbers: Vec<u32> = version.split('.').map(|number| number.parse().expect("a number")).collect();
    numbers >= vec![1, 21]
}

impl PgBouncer {
    async fn start(settings: &str, of_databases: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let direct: tokio_postgres::Config = database::cluster().url("postgres").parse().expect("an address");
        let Host::Unix(socket) = &direct.get_hosts()[0] else { panic!("the shared cluster has a socket") };
        let password = String::from_utf8_lossy(direct.get_password().expect("a password")).into_owned();
        let (port, user) = (direct.get_ports()[0], direct.get_user().expect("a user"));
        let ini = format!(
            "[databases]\n* = host={} port={port} user={user} password={password} {of_databases}\n\
             [pgbouncer]\nlisten_addr =\nlisten_port = 6432\nunix_socket_dir = {}\nauth_type = any\n\
             max_client_conn = 500\n{settings}\n",
            socket.display(),
            folder.path().display(),
        );
        fs::write(folder.path().join("pgbouncer.ini"), ini).expect("its settings");
        let shell = Self::run(folder.path(), socket);
        let front = folder.path().join(".s.PGSQL.6432");
        until("PgBouncer listens", async || UnixStream::connect(&front).is_ok()).await;
        Self { shell, folder }
    }

    /// Runs it as the owner of the cluster: PgBouncer refuses root, and the socket all other users.
    /// A shell ends it when the pipe to this process is closed in any way.
    fn run(folder: &Path, socket: &Path) -> Child {
        let owner = fs::metadata(socket).expect("the cluster runs");
        let log = fs::File::create(folder.join("log")).expect("a file");
        let mut command = Command::new("sh");
        command.args(["-c", "\"$@\" & read -r _; kill -9 $!; wait $!", "sh"]).arg(program());
        command.arg(folder.join("pgbouncer.ini")).current_dir("/");
        command.stdin(Stdio::piped()).stdout(log.try_clone().expect("a file")).stderr(log);
        if nix::unistd::geteuid().is_root() {
            for path in [folder.to_path_buf(), folder.join("pgbouncer.ini")] {
                chown(path, Some(owner.uid()), Some(owner.gid())).expect("we are root");
            }
            command.uid(owner.uid()).gid(owner.gid());
        }
        fs::set_permissions(folder, Permissions::from_mode(0o700)).expect("a folder of ours");
        command.spawn().expect("it runs")
    }

    /// Opens a connection of the test itself through PgBouncer.
    async fn client(&self, direct: &str) -> tokio_postgres::Client {
        let mut config = tokio_postgres::Config::new();
        config.host_path(self.folder.path()).port(6432).user("waybill");
        config.dbname(direct.rsplit_once('/').expect("a database").1);
        let (client, connection) = config.connect(tokio_postgres::NoTls).await.expect("a connection");
        tokio::spawn(connection);
        client
    }

    /// Starts a server that reaches its database only through PgBouncer. The test itself connects
    /// directly.
    async fn serve(&self, direct: &str, flags: [&str; 2]) -> App {
        let name = direct.rsplit_once('/').expect("a database").1;
        let folder = self.folder.path().display().to_string().replace('/', "%2F");
        let url = Some(format!("postgres://waybill@{folder}:6432/{name}"));
        let flags = flags.map(str::to_owned).to_vec();
        let mut app = App::start_with(Options { flags, url, ..Options::default() }).await;
        direct.clone_into(&mut app.url);
        app
    }
}

/// Polls often.
const POLLING: [&str; 2] = ["--notify=false", "--poll-interval-ms=20"];
/// Polls so seldom that what is delivered was delivered by a notification.
const LISTENING: [&str; 2] = ["--notify=true", "--poll-interval-ms=60000"];

impl Drop for PgBouncer {
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        let _ = self.shell.wait();
    }
}

/// Starts two servers on one empty database. Everything they do goes through PgBouncer, including
/// their migrations.
async fn two_servers(bouncer: &PgBouncer, flags: [&str; 2]) -> (App, App) {
    let direct = database::empty().await;
    let one = bouncer.serve(&direct, flags).await;
    let other = bouncer.serve(&direct, flags).await;
    (one, other)
}

/// Many callers publish and work at once, on both servers, with and without ordering keys.
async fn publish_and_complete_many(one: &App, other: &App) {
    const EVENTS: usize = 400;
    const CALLERS: usize = 16;
    let servers = [one, other];
    join_all((0..CALLERS).map(async |caller| {
        for n in 0..EVENTS / CALLERS {
            let mut event = json!({"title": "a job", "tags": "a"});
            if n % 4 == 0 {
                event["ordering_key"] = format!("k{caller}").into();
            }
            servers[(caller + n) % 2].publish(event).await;
        }
    }))
    .await;
    let finished = join_all((0..CALLERS).map(async |caller| {
        let mut finished = 0;
        // Another worker may hold the last event of a key: a worker that waits without result is
        // done.
        let path = format!("/events/subscribe?tags=a&worker_id=w:{caller}&wait_seconds=2");
        while let (app, 200, event) = claim(servers[(caller + finished) % 2], &path).await {
            app.settle(&Claim::of(&event), "complete", Naming::Lease).await.expect(200);
            finished += 1;
        }
        finished
    }))
    .await;
    assert_eq!(finished.iter().sum::<usize>(), EVENTS);
    ledger::check(one).await;
}

async fn claim<'a>(app: &'a App, path: &str) -> (&'a App, u16, Value) {
    let reply = app.get(path).await;
    let event = if reply.status == 200 { reply.json() } else { Value::Null };
    (app, reply.status, event)
}

/// Asserts that a waiting worker on one server gets work that is published on the other.
async fn deliver_across(one: &App, other: &App) {
    let request = other.client.get(format!("{}/events/subscribe?tags=b&worker_id=w:1&wait_seconds=60", other.base));
    let waiter = tokio::spawn(async move { request.send().await.expect("a response").json::<Value>().await });
    until("the worker waits", async || other.engine().hub().asleep() == 1).await;
    let id = one.publish_tagged("b").await;
    let event = waiter.await.expect("no panic").expect("an event");
    assert_eq!(event["id"], id);
    other.settle(&Claim::of(&event), "complete", Naming::Lease).await.expect(200);
}

/// Returns a setting on many of a server's connections at once.
async fn settings_of(app: &App, name: &str) -> Vec<String> {
    #[derive(diesel::QueryableByName)]
    struct Row {
        #[diesel(sql_type = diesel::sql_types::Text)]
        value: String,
    }
    join_all((0..8).map(async |_| {
        let mut conn = app.engine().database().connection().await.expect("a connection");
        // Long enough for all connections to be used at once.
        let sql = format!("SELECT current_setting('{name}') AS value FROM pg_sleep(0.1)");
        diesel::sql_query(sql).get_result::<Row>(&mut conn).await.expect("a row").value
    }))
    .await
}

/// Commits must be durable whichever connection they are made on.
async fn assert_commits_are_durable(app: &App) {
    assert_eq!(settings_of(app, "synchronous_commit").await, ["on"; 8]);
    assert_eq!(settings_of(app, "default_transaction_isolation").await, ["read committed"; 8]);
    assert_eq!(settings_of(app, "enable_seqscan").await, ["off"; 8]);
}

/// Gives the database defaults that are not safe for a queue.
async fn spoil_defaults(app: &App) {
    let name = app.url.rsplit_once('/').expect("a database").1;
    let spoil = format!(
        "ALTER DATABASE {name} SET synchronous_commit = off; \
         ALTER DATABASE {name} SET default_transaction_isolation = 'repeatable read'"
    );
    database::execute(&app.url, &spoil).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn with_session_pooling_servers_work_as_without_a_proxy() {
    let bouncer = PgBouncer::start("pool_mode = session\ndefault_pool_size = 40", "").await;
    let (one, other) = two_servers(&bouncer, POLLING).await;
    deliver_across(&one, &other).await;
    publish_and_complete_many(&one, &other).await;
    spoil_defaults(&one).await;
    let another = bouncer.serve(&one.url, POLLING).await;
    assert_commits_are_durable(&another).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn with_session_pooling_servers_wake_each_other() {
    let bouncer = PgBouncer::start("pool_mode = session\ndefault_pool_size = 40", "").await;
    let (one, other) = two_servers(&bouncer, LISTENING).await;
    let listeners = "SELECT count(*) FROM pg_stat_activity \
         WHERE datname = current_database() AND state = 'idle' AND query LIKE 'LISTEN waybill%'";
    until("both listen", async || one.count(listeners).await == 2).await;
    // Twice, because a server polls once when it begins to listen.
    for _ in 0..2 {
        deliver_across(&one, &other).await;
    }
}

/// Transaction pooling depends on this, which PgBouncer supports since a certain version.
#[tokio::test(flavor = "multi_thread")]
async fn prepared_statements_work_with_transaction_pooling_from_1_21_on() {
    let prepared_statements = if supports_prepared_statements() { "max_prepared_statements = 200" } else { "" };
    let bouncer =
        PgBouncer::start(&format!("pool_mode = transaction\ndefault_pool_size = 2\n{prepared_statements}"), "").await;
    let direct = database::empty().await;
    let (one, other) = (bouncer.client(&direct).await, bouncer.client(&direct).await);
    let statement = one.prepare("SELECT 1").await.expect("prepared, on the only connection there is");
    other.batch_execute("BEGIN").await.expect("that connection is taken");
    assert_eq!(one.query(&statement, &[]).await.is_ok(), supports_prepared_statements());
}

/// Fewer connections than the servers have, so that they are shared.
#[tokio::test(flavor = "multi_thread")]
async fn with_transaction_pooling_servers_work_if_prepared_statements_and_settings_are_configured() {
    if !supports_prepared_statements() {
        eprintln!("not tried: PgBouncer carries prepared statements from 1.21 on");
        return;
    }
    let settings = "pool_mode = transaction\ndefault_pool_size = 6\nmax_prepared_statements = 200";
    let bouncer = PgBouncer::start(settings, &format!("connect_query='{CONNECT_QUERY}'")).await;
    let (one, other) = two_servers(&bouncer, POLLING).await;
    // On a shared connection, the next server to start would wait for such a lock forever.
    let locks = "SELECT count(*) FROM pg_locks l JOIN pg_database d ON d.oid = l.database \
         WHERE l.locktype = 'advisory' AND d.datname = current_database()";
    until("no lock of the migrations is left", async || one.count(locks).await == 0).await;
    deliver_across(&one, &other).await;
    publish_and_complete_many(&one, &other).await;
    spoil_defaults(&one).await;
    database::execute(
        &one.url,
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
         WHERE datname = current_database() AND pid <> pg_backend_pid()",
    )
    .await;
    until("the server is ready again", async || one.get("/ready").await.status == 200).await;
    assert_commits_are_durable(&one).await;
}
