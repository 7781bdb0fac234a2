//! The data directory of the embedded PostgreSQL is copied, and the copy is started later. Nothing
//! distinguishes it from the original.

use std::process::Command;

use super::witness::Witness;
use crate::support::process::{Process, waybill};
use crate::support::{ClusterDir, database};

fn command(verb: &str, cluster_dir: &ClusterDir) -> Command {
    let mut command = waybill(&[verb, "--data-dir"]);
    command.arg(cluster_dir.data_dir());
    command
}

fn serve(cluster_dir: &ClusterDir) -> Process {
    let mut serve = command("serve", cluster_dir);
    serve.args(["--bind", "127.0.0.1:0"]);
    tokio::task::block_in_place(|| Process::start(serve))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copied_data_directory_hands_out_new_ids_after_migrate_restored() {
    let (cluster_dir, copy, mut witness) = (ClusterDir::with_cluster(), ClusterDir::new(), Witness::default());
    let server = serve(&cluster_dir);
    witness.publish_job(&server.app).await;
    server.stop().await;
    let copied = Command::new("cp").arg("-a").arg(cluster_dir.data_dir()).arg(copy.data_dir()).status();
    assert!(copied.expect("cp runs").success());

    let server = serve(&cluster_dir);
    witness.claim_job(&server.app).await;
    witness.publish_job(&server.app).await;
    witness.claim_job(&server.app).await;
    server.stop().await;

    let mut restored = command("migrate", &copy);
    let output = restored.arg("--restored").output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let printed = String::from_utf8(output.stdout).expect("text");
    let words: Vec<&str> = printed.lines().last().expect("a line").split(' ').collect();
    assert_eq!(words[..5], ["the", "database", "was", "restored:", "the"], "{printed}");
    let server = serve(&copy);
    let url = copy.url();
    let epochs = "SELECT count(*) FROM waybill.histories WHERE reason = 'by_hand' AND";
    assert_eq!(database::count(&url, &format!("{epochs} epoch = '{}'", words[6])).await, 1, "{printed}");
    witness.claim_job(&server.app).await;
    witness.publish_job(&server.app).await;
    witness.claim_job(&server.app).await;
    server.stop().await;
}
