//! Several servers on one database.

use serde_json::json;

use super::{SECRET, github_source, path_of, send_as_github};
use crate::support::{App, Options, until};

const LISTENERS: &str = "SELECT count(*) FROM pg_stat_activity \
     WHERE datname = current_database() AND state = 'idle' AND query LIKE 'LISTEN waybill%'";

async fn two_servers(flags: &str) -> (App, App) {
    let flags: Vec<String> = flags.split_whitespace().map(str::to_owned).collect();
    let one = App::start_with(Options { flags: flags.clone(), ..Options::default() }).await;
    let other = App::start_with(Options { flags, url: Some(one.url.clone()), ..Options::default() }).await;
    (one, other)
}

/// Changes a source through one server while another one has it in memory.
async fn change_and_watch(one: &App, other: &App) {
    let source = github_source(one).await;
    let rotate = format!("{}/rotate-secret", path_of(&source));
    // It is known on the other before any notification: that asks the database.
    send_as_github(other, &source, SECRET, "{}").await.expect(202);
    one.post(&rotate, &json!({"secret": "new", "overlap_seconds": 0})).await.expect(200);
    until("the new secret is known", async || send_as_github(other, &source, "new", "{}").await.status == 202).await;
    send_as_github(other, &source, SECRET, "{}").await.problem(401, "webhook_refused");
    one.patch(&path_of(&source), &json!({"is_active": false})).await.expect(200);
    until("it is disabled", async || send_as_github(other, &source, "new", "{}").await.status == 404).await;
    one.patch(&path_of(&source), &json!({"is_active": true})).await.expect(200);
    until("it is enabled", async || send_as_github(other, &source, "new", "{}").await.status == 202).await;
    one.delete(&path_of(&source)).await.expect(204);
    until("it is deleted", async || send_as_github(other, &source, "new", "{}").await.status == 404).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_reaches_the_other_server_by_a_notification() {
    let (one, other) = two_servers("--poll-interval-ms 60000").await;
    until("both listen", async || one.count(LISTENERS).await == 2).await;
    change_and_watch(&one, &other).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_poll_alone_finds_a_change() {
    let (one, other) = two_servers("--poll-interval-ms 10 --notify false").await;
    change_and_watch(&one, &other).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_counts_of_all_servers_are_added() {
    let (one, other) = two_servers("").await;
    let source = github_source(&one).await;
    for server in [&one, &other, &other] {
        send_as_github(server, &source, "wrong", "{}").await.problem(401, "webhook_refused");
    }
    other.engine().record_refused_webhooks().await.expect("the database answers");
    assert_eq!(one.get(&path_of(&source)).await.expect(200).json()["refused"]["webhooks"], 3);
}
