//! Workers whose server is killed again and again: nothing is lost, and nothing runs twice at once.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use serde_json::json;

use super::Working;
use crate::support::process::{Process, waybill};
use crate::support::{database, until};

const EVENTS: usize = 200;
const KILLS: usize = 4;

/// Takes a lock of its event, which fails if another program has it, and writes down that it ran.
const SCRIPT: &str = r#"mkdir "$FOLDER/lock-$WAYBILL_EVENT_ID" || { echo "$WAYBILL_EVENT_ID" >> "$FOLDER/overlaps"; exit 65; }
    sleep 0.01; echo "$WAYBILL_EVENT_ID" >> "$FOLDER/runs"; rmdir "$FOLDER/lock-$WAYBILL_EVENT_ID""#;

fn serve(url: &str, address: &str) -> Process {
    let mut command = waybill(&["serve", "--bind", address]);
    command.env("DATABASE_URL", url);
    Process::start(command)
}

/// Returns how often each event has run.
fn runs(folder: &Path) -> BTreeMap<String, usize> {
    let mut runs = BTreeMap::new();
    for id in fs::read_to_string(folder.join("runs")).unwrap_or_default().lines() {
        *runs.entry(id.to_owned()).or_insert(0) += 1;
    }
    runs
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_and_nothing_runs_twice_while_servers_are_killed() {
    let url = database::migrated().await;
    let mut server = serve(&url, "127.0.0.1:0");
    let base = server.app.base.clone();
    let address = base.trim_start_matches("http://").to_owned();
    let events: Vec<_> = (0..EVENTS).map(|n| json!({"title": "a job", "tags": "a", "payload": n})).collect();
    server.app.post("/events/batch", &json!({"events": events})).await.expect(201);
    let folder = Arc::new(tempfile::tempdir().expect("a folder"));
    let arguments =
        ["work", "--tags", "a", "--concurrency", "2", "--heartbeat-seconds", "0.5", "--", "sh", "-c", SCRIPT];
    let workers = [(); 2].map(|()| Working::in_folder(&base, None, Arc::clone(&folder), &arguments));
    for kill in 1..=KILLS {
        until("some have run", async || runs(folder.path()).len() >= kill * EVENTS / (KILLS + 1)).await;
        server.kill_9().await;
        server = serve(&url, &address);
    }
    let completed = "SELECT count(*) FROM waybill.deliveries WHERE status = 'COMPLETED'";
    until("all are completed", async || database::count(&url, completed).await == EVENTS as i64).await;
    for worker in workers {
        worker.stop().await;
    }
    let runs = runs(folder.path());
    assert_eq!((runs.len(), runs.values().max()), (EVENTS, Some(&1)), "{runs:?}");
    assert!(!folder.path().join("overlaps").exists());
    server.stop().await;
}
