//! A dump is restored as `docs/operations.md` describes.

use std::path::Path;
use std::process::Command;

use serde_json::json;
use tempfile::NamedTempFile;

use super::witness::Witness;
use crate::support::process::{Process, waybill};
use crate::support::receiver::{Receiver, Reply};
use crate::support::work::Naming;
use crate::support::{App, database};

fn serve(url: &str) -> Process {
    let arguments = ["serve", "--bind", "127.0.0.1:0", "--database-url", url, "--webhook-allow", "127.0.0.0/8"];
    let mut server = tokio::task::block_in_place(|| Process::start(waybill(&arguments)));
    url.clone_into(&mut server.app.url);
    server
}

fn run(program: &str, arguments: &[&str]) {
    let output = Command::new(database::cluster().bin_dir().join(program)).args(arguments).output().expect("it runs");
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Drops the database and creates it again from a dump.
async fn restore(url: &str, dump: &Path) {
    let name = url.rsplit_once('/').expect("a database").1;
    let admin = database::cluster().url("postgres");
    database::execute(&admin, &format!("DROP DATABASE {name}")).await;
    database::execute(&admin, &format!("CREATE DATABASE {name}")).await;
    run("pg_restore", &["--exit-on-error", "-d", url, dump.to_str().expect("a path")]);
}

/// Continues after a restore: first with the jobs that were there before, then with new ones.
async fn continue_work(app: &App, receiver: &Receiver, witness: &mut Witness) {
    let waiting = witness.claim_job(app).await;
    witness.publish_job(app).await;
    let own = witness.claim_job(app).await;
    for claim in [&waiting, &own] {
        app.settle(claim, "complete", Naming::Lease).await.expect(200);
    }
    for _ in 0..3 {
        witness.push(app, receiver, 1).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn after_each_restore_of_a_dump_no_id_lease_or_webhook_id_is_handed_out_again() {
    let (url, receiver, mut witness) = (database::migrated().await, Receiver::start().await, Witness::default());
    let dump = NamedTempFile::new().expect("a file");
    let server = serve(&url);
    let subscription = json!({"event_types": ["order.*"], "max_attempts": 1});
    server.app.subscribe(&receiver.url("/hook"), subscription).await;
    witness.push(&server.app, &receiver, 1).await;
    witness.publish_job(&server.app).await;
    let refused = server.app.publish_and_fail(&receiver, "order.paid", json!({"n": 0})).await;
    let first_name = receiver.so_far().last().expect("a request").header("webhook-id").map(str::to_owned);
    let renamed = server.app.publish_and_fail(&receiver, "order.paid", json!({"n": 0})).await;
    run("pg_dump", &["-Fc", "-f", dump.path().to_str().expect("a path"), &url]);
    continue_work(&server.app, &receiver, &mut witness).await;
    server.stop().await;

    let (mut lost_cursor, mut new_names) = (None::<String>, Vec::new());
    for _ in 0..2 {
        restore(&url, dump.path()).await;
        let server = serve(&url);
        continue_work(&server.app, &receiver, &mut witness).await;
        if let Some(cursor) = &lost_cursor {
            server.app.get_after("/events", cursor).await.problem(400, "cursor_mismatch");
        }
        lost_cursor = Some(server.app.next_of("/events?limit=1").await);

        // What was published before the dump keeps its `webhook-id`.
        let letter = server.app.open_dead_letter(refused).await["id"].clone();
        receiver.next(Reply::ok());
        let sent = receiver.count();
        server.app.post(&format!("/dead-letters/{letter}/replay"), &json!({})).await.expect(200);
        let again = receiver.received(sent + 1).await.pop().expect("a request");
        assert_eq!(again.header("webhook-id").map(str::to_owned), first_name);

        // An event that the receiver has not seen has another `webhook-id` in each history.
        let letter = server.app.open_dead_letter(renamed).await["id"].clone();
        receiver.next(Reply::ok());
        let order = json!({"new_webhook_id": true});
        server.app.post(&format!("/dead-letters/{letter}/replay"), &order).await.expect(200);
        let named = receiver.received(sent + 2).await.pop().expect("a request");
        new_names.push(named.header("webhook-id").map(str::to_owned));
        server.stop().await;
    }
    assert_ne!(new_names[0], new_names[1]);
    assert_eq!(database::count(&url, "SELECT count(*) FROM waybill.histories").await, 2);
    assert_eq!(database::count(&url, "SELECT max(id) / (2::bigint ^ 53)::bigint FROM waybill.events").await, 0);
}
