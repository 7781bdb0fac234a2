//! A standby that lagged behind is promoted under a running server.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use serde_json::json;
use tokio::time::Instant;
use waybill::postgres::Cluster;

use super::witness::Witness;
use crate::support::receiver::Receiver;
use crate::support::work::{Claim, Naming};
use crate::support::{App, ClusterDir, Options, database, ledger, until};

/// A standby that follows a cluster from its start. It ends when it is dropped, and with this
/// process at the latest.
struct Standby {
    shell: Child,
    cluster_dir: ClusterDir,
    password: String,
}

/// A PostgreSQL program run as the owner of the primary's files, because it refuses to run as root.
fn as_owner(program: PathBuf, owner: &fs::Metadata) -> Command {
    // A shell ends the program when the pipe to this process is closed in any way.
    let mut command = Command::new("sh");
    command.args(["-c", "\"$@\" & read -r _; kill -9 $!; wait $!", "sh"]).arg(program).current_dir("/");
    if nix::unistd::geteuid().is_root() {
        command.uid(owner.uid()).gid(owner.gid());
    }
    command
}

impl Standby {
    async fn of(cluster: &Cluster, primary: &ClusterDir) -> Self {
        let cluster_dir = ClusterDir::new();
        let owner = fs::metadata(primary.data_dir().join("postgres")).expect("a cluster");
        let run = cluster_dir.root().join("run");
        for folder in [cluster_dir.data_dir(), run.clone()] {
            fs::create_dir(&folder).expect("a folder");
            fs::set_permissions(&folder, Permissions::from_mode(0o700)).expect("a folder of ours");
            if nix::unistd::geteuid().is_root() {
                chown(&folder, Some(owner.uid()), Some(owner.gid())).expect("we are root");
            }
        }
        let password = fs::read_to_string(primary.data_dir().join("password")).expect("a password").trim().to_owned();
        let mut backup = Command::new(cluster.bin_dir().join("pg_basebackup"));
        backup.args(["--checkpoint=fast", "--write-recovery-conf", "-U", "waybill", "-h"]);
        backup.arg(primary.data_dir().join("run")).arg("-D").arg(cluster_dir.data_dir()).env("PGPASSWORD", &password);
        if nix::unistd::geteuid().is_root() {
            backup.uid(owner.uid()).gid(owner.gid()).current_dir("/");
        }
        let output = backup.output().expect("it runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let mut postgres = as_owner(cluster.bin_dir().join("postgres"), &owner);
        postgres.arg("-D").arg(cluster_dir.data_dir()).args(["-c", "listen_addresses=", "-c", "fsync=off"]);
        // A standby must allow at least as many locks as its primary.
        postgres.args(["-c", "max_locks_per_transaction=1024", "-k"]).arg(run);
        let log = fs::File::create(cluster_dir.root().join("log")).expect("a file");
        postgres.stdin(Stdio::piped()).stdout(log.try_clone().expect("a file")).stderr(log);
        Standby { shell: postgres.spawn().expect("it runs"), cluster_dir, password }
    }

    fn socket_dir(&self) -> PathBuf {
        self.cluster_dir.root().join("run")
    }

    fn url(&self) -> String {
        url_of(&[self.socket_dir()], &self.password, "")
    }

    /// Waits until the standby has caught up, and then stops its replication.
    async fn stop_following(&self, primary: &str) {
        until("the standby answers", async || self.socket_dir().join(".s.PGSQL.5432").exists()).await;
        let position = database::count(primary, "SELECT pg_current_wal_lsn() - '0/0'").await;
        let caught_up = format!("SELECT (pg_last_wal_replay_lsn() - '0/0' >= {position})::integer");
        until("the standby has caught up", async || {
            waybill::store::connection::connect::connect(&self.url(), "").await.is_ok()
                && database::count(&self.url(), &caught_up).await == 1
        })
        .await;
        database::execute(&self.url(), "ALTER SYSTEM SET primary_conninfo = ''").await;
        database::execute(&self.url(), "SELECT pg_reload_conf()").await;
        let followers = "SELECT count(*) FROM pg_stat_replication";
        until("the standby has stopped replicating", async || database::count(primary, followers).await == 0).await;
    }
}

impl Drop for Standby {
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        let _ = self.shell.wait();
    }
}

/// Returns a URL for whichever of the two takes writes, if `more` asks for that.
fn url_of(socket_dirs: &[PathBuf], password: &str, more: &str) -> String {
    let hosts: Vec<String> = socket_dirs.iter().map(|folder| folder.display().to_string()).collect();
    format!("host={} port=5432 user=waybill password={password} dbname=postgres {more}", hosts.join(","))
}

/// A server on a primary with a standby. The standby has one pushed event and one job, and nothing
/// of what came afterwards.
struct Pair {
    app: App,
    cluster: Cluster,
    standby: Standby,
    receiver: Receiver,
    witness: Witness,
    /// A claim of that job that the standby does not have.
    lost_claim: Claim,
    _primary: ClusterDir,
}

impl Pair {
    async fn start(session: &str) -> Self {
        let (primary, receiver, mut witness) =
            (ClusterDir::with_cluster(), Receiver::start().await, Witness::default());
        let cluster = primary.start();
        waybill::store::connection::migrate::migrate(&primary.url()).await.expect("up");
        let standby = Standby::of(&cluster, &primary).await;
        let hosts = [primary.data_dir().join("run"), standby.socket_dir()];
        let url = Some(url_of(&hosts, &standby.password, session));
        let app = App::start_with(Options { url, ..Options::default() }).await;
        app.subscribe(&receiver.url("/one"), json!({"event_types": ["order.*"]})).await;
        witness.push(&app, &receiver, 1).await;
        witness.publish_job(&app).await;

        standby.stop_following(&primary.url()).await;
        app.subscribe(&receiver.url("/lost"), json!({"event_types": ["order.*"]})).await;
        witness.push(&app, &receiver, 2).await;
        let lost_claim = witness.claim_job(&app).await;
        witness.publish_and_claim_many(&app).await;
        Pair { app, cluster, standby, receiver, witness, lost_claim, _primary: primary }
    }

    fn stop_primary(&self) {
        tokio::task::block_in_place(|| self.cluster.stop()).expect("PostgreSQL stops");
    }

    async fn promote(&self) {
        database::execute(&self.standby.url(), "SELECT pg_promote()").await;
    }

    /// Asserts that work continues from what the standby had.
    async fn assert_continues(mut self) {
        let (app, receiver, witness) = (&self.app, &self.receiver, &mut self.witness);
        witness.push(app, receiver, 1).await;
        // The job is pending again, for another worker under another lease.
        let again = witness.claim_job(app).await;
        assert_eq!(again.event_id, self.lost_claim.event_id);
        app.settle(&self.lost_claim, "complete", Naming::Lease).await.problem(409, "lease_lost");
        app.settle(&again, "complete", Naming::Lease).await.expect(200);
        app.subscribe(&receiver.url("/two"), json!({"event_types": ["order.*"]})).await;
        witness.push(app, receiver, 2).await;
        witness.publish_and_claim_many(app).await;
        assert_eq!(app.count("SELECT count(*) FROM waybill.histories WHERE reason = 'noticed'").await, 1);
        ledger::check(app).await;
        self.app.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_failover_to_a_lagging_standby_work_continues_and_no_id_is_handed_out_again() {
    let pair = Pair::start("target_session_attrs=read-write").await;
    pair.stop_primary();
    pair.promote().await;
    let promoted_at = Instant::now();
    let event = json!({"title": "t", "tags": "other"});
    until("a publish succeeds", async || pair.app.post("/events", &event).await.status == 201).await;
    println!("a publish succeeds {:?} after the promotion", promoted_at.elapsed());
    pair.assert_continues().await;
}

/// The server's connections are older than the promotion.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_was_connected_to_the_standby_before_its_promotion_hands_out_no_id_again() {
    let pair = Pair::start("").await;
    pair.stop_primary();
    until("the standby is read from", async || pair.app.get("/events").await.status == 200).await;
    pair.promote().await;
    pair.assert_continues().await;
}
