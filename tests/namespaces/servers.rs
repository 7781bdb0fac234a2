//! Two servers and two namespaces: notifications and long polls.

use tokio::task::JoinHandle;

use super::{id_of, two_namespaces};
use crate::support::{App, Options, Reply, until, within_patience};

const LISTENERS: &str = "SELECT count(*) FROM pg_stat_activity \
     WHERE datname = current_database() AND state = 'idle' AND query LIKE 'LISTEN waybill%'";

/// Two servers that learn of each other's work by `NOTIFY` and not by polling.
async fn two_listening_servers() -> (App, App) {
    let flags = || vec!["--poll-interval-ms".to_owned(), "60000".to_owned()];
    let one = App::start_with(Options { flags: flags(), ..Options::default() }).await;
    let other = App::start_with(Options { flags: flags(), url: Some(one.url.clone()), ..Options::default() }).await;
    until("both listen", async || one.count(LISTENERS).await == 2).await;
    (one, other)
}

/// Lets a worker of a namespace wait on a server for the tag `a`.
async fn wait(server: &App, name: &str) -> JoinHandle<Reply> {
    let before = server.engine().hub().len();
    let team = server.in_namespace(name);
    let waiting = tokio::spawn(async move { team.get("/events/subscribe?tags=a&worker_id=w:1&wait_seconds=60").await });
    let hub = server.engine().hub().clone();
    until("the worker waits", async || hub.len() == before + 1 && hub.asleep() == before + 1).await;
    waiting
}

#[tokio::test(flavor = "multi_thread")]
async fn a_publish_wakes_waiters_of_its_namespace_on_all_servers_and_no_others() {
    let (one, other) = two_listening_servers().await;
    let (_, south) = two_namespaces(&one).await;
    // Twice: a server scans once when it begins to listen.
    for _ in 0..2 {
        let waiters = [wait(&other, "north").await, wait(&one, "north").await, wait(&other, "south").await];
        let id = south.publish_tagged("a").await;
        let [north_there, north_here, south_there] = waiters;
        let reply = within_patience(south_there).await.expect("no panic");
        assert_eq!(id_of(&reply.expect(200).json()), id);
        assert!(!north_there.is_finished() && !north_here.is_finished());
        assert!(one.in_namespace("north").claim("a", "w:2").await.is_none());
        let north = one.in_namespace("north");
        let (first, second) = (north.publish_tagged("a").await, north.publish_tagged("a").await);
        let mut woken = Vec::new();
        for waiter in [north_there, north_here] {
            let reply = within_patience(waiter).await.expect("no panic");
            woken.push(id_of(&reply.expect(200).json()));
        }
        woken.sort_unstable();
        assert_eq!(woken, [first, second]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_created_on_one_server_is_known_to_the_other() {
    let (one, other) = two_listening_servers().await;
    one.namespace("team").await;
    let id = other.in_namespace("team").publish_tagged("a").await;
    assert_eq!(id_of(&one.in_namespace("team").claim("a", "w:1").await.expect("an event")), id);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_notifications_the_poll_finds_work_of_every_namespace() {
    let flags = || "--poll-interval-ms 10 --notify false".split(' ').map(str::to_owned).collect::<Vec<_>>();
    let one = App::start_with(Options { flags: flags(), ..Options::default() }).await;
    let other = App::start_with(Options { flags: flags(), url: Some(one.url.clone()), ..Options::default() }).await;
    two_namespaces(&one).await;
    let waiters = [wait(&other, "north").await, wait(&other, "south").await];
    for (name, waiter) in ["north", "south"].into_iter().zip(waiters) {
        let id = one.in_namespace(name).publish_tagged("a").await;
        let reply = within_patience(waiter).await.expect("no panic");
        assert_eq!(id_of(&reply.expect(200).json()), id);
    }
}
