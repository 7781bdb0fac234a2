//! The whole database goes away, and comes back.

use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::Fragile;
use crate::support::{App, Reply, http_client, until, within_patience};

/// The documented time within which every caller gets a response.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// Calls that need the database, about an event that its worker holds.
fn calls(id: i64) -> Vec<(&'static str, String, Option<Value>)> {
    let event = json!({"title": "t", "tags": "a"});
    let by_worker = json!({"worker_id": "w:1"});
    let get = |path: &str| ("GET", path.to_owned(), None);
    let post = |path: String, body: &Value| ("POST", path, Some(body.clone()));
    let of_event = |verb: &str| format!("/events/{id}/{verb}");
    let settlements = json!([{"event_id": id, "action": "fail"}]);
    let claim = json!({"tags": ["a"], "wait_seconds": 60});
    vec![
        post("/events".into(), &event),
        post("/events/batch".into(), &json!({"events": [event]})),
        get("/events/subscribe?tags=a&worker_id=w:2"),
        get("/events/subscribe?tags=a&worker_id=w:2&wait_seconds=60"),
        post("/events/claim".into(), &json!({"tags": ["a"], "worker_id": "w:2", "idempotency_key": "r"})),
        post(of_event("start"), &by_worker),
        post(of_event("heartbeat"), &by_worker),
        post(of_event("complete"), &by_worker),
        post(of_event("fail"), &by_worker),
        post(of_event("release"), &by_worker),
        post("/events/settle".into(), &json!({"worker_id": "w:1", "settlements": settlements})),
        post("/events/settle".into(), &json!({"worker_id": "w:1", "settlements": settlements, "claim": claim})),
        ("POST", of_event("reset"), None),
        ("POST", of_event("retry"), None),
        ("POST", of_event("cancel"), None),
        post("/events/reset".into(), &json!({"filter": {}})),
        post("/events/retry".into(), &json!({"filter": {}})),
        post("/events/cancel".into(), &json!({"filter": {}, "dry_run": true})),
        post("/operations/1/cancel".into(), &json!({})),
        get(&format!("/events/{id}")),
        get("/events"),
        get("/logs"),
        get("/workers"),
        get("/tags"),
        get("/operations"),
        get("/ready"),
    ]
}

/// What a call that cannot be carried out may be answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expected {
    /// Nothing was changed.
    Refused,
    /// The same; or, for a call that writes and has been sent, that the outcome is unknown.
    RefusedOrUnknown,
}

/// Sends all calls at once, and asserts that each gets a 503 within the documented time.
async fn assert_all_get_503(app: &App, calls: Vec<(&'static str, String, Option<Value>)>, expected: Expected) {
    let mut answers = tokio::task::JoinSet::new();
    for (method, path, body) in calls {
        let mut request = app.client.request(method.parse().expect("a method"), format!("{}{path}", app.base));
        if let Some(body) = body {
            request = request.json(&body);
        }
        answers.spawn(async move {
            let sent_at = Instant::now();
            let reply = Reply::of(request.send().await.expect("a response")).await;
            (format!("{method} {path}"), sent_at.elapsed(), reply)
        });
    }
    for (call, elapsed, reply) in within_patience(answers.join_all()).await {
        assert_eq!(reply.status, 503, "{call}: {}", reply.text);
        assert!(elapsed < ANSWER_WITHIN, "{call} took {elapsed:?}");
        assert_eq!(reply.header("retry-after"), Some("1"), "{call}");
        let writes = call.starts_with("POST") || call.contains("/subscribe");
        let is_unknown = reply.json()["code"] == "outcome_unknown" && writes && expected == Expected::RefusedOrUnknown;
        reply.problem(503, if is_unknown { "outcome_unknown" } else { "database_unavailable" });
    }
}

/// Publishes one pending event and one that `w:1` holds. Returns their ids.
async fn some_work(app: &App) -> (i64, i64) {
    let held = app.publish_tagged("a").await;
    assert_eq!(app.claim("a", "w:1").await.expect("an event")["id"], held);
    (app.publish_tagged("a").await, held)
}

/// Asserts that acknowledged work is still there, and that work continues.
async fn assert_work_continues(app: &App, (pending, held): (i64, i64)) {
    app.complete(held, "w:1").await.expect(200);
    assert_eq!(app.actions(held).await, ["PICKED", "COMPLETED"]);
    assert_eq!(app.claim("a", "w:2").await.expect("an event")["id"], pending);
    assert_eq!(app.claim("a", "w:2").await, None, "nothing that was refused has been stored");
    app.complete(pending, "w:2").await.expect(200);
    app.publish_tagged("a").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_the_database_is_stopped_every_caller_gets_a_503_in_time_and_afterwards_work_continues() {
    let mut fragile = Fragile::start().await;
    let work = some_work(&fragile.app).await;
    fragile.stop_database();
    assert_all_get_503(&fragile.app, calls(work.1), Expected::Refused).await;
    fragile.app.get("/health").await.expect(200);
    fragile.start_database().await;
    assert_work_continues(&fragile.app, work).await;
}

/// Returns every process of a PostgreSQL, starting with the postmaster.
pub(super) fn processes_of(postmaster: u32) -> Vec<Pid> {
    let children = std::fs::read_to_string(format!("/proc/{postmaster}/task/{postmaster}/children"));
    let children = children.expect("its children");
    let children = children.split_whitespace().map(|pid| pid.parse().expect("a pid"));
    std::iter::once(postmaster.cast_signed()).chain(children).map(Pid::from_raw).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn while_the_database_hangs_every_caller_gets_a_503_in_time() {
    let fragile = Fragile::start().await;
    let work = some_work(&fragile.app).await;
    let processes = processes_of(fragile.cluster_dir.postmaster().expect("it runs"));
    processes.iter().for_each(|pid| kill(*pid, Signal::SIGSTOP).expect("it runs"));
    let reads =
        calls(work.1).into_iter().filter(|(method, path, _)| *method == "GET" || path.starts_with("/events/reset"));
    assert_all_get_503(&fragile.app, reads.collect(), Expected::RefusedOrUnknown).await;
    assert_all_get_503(&fragile.app, calls(work.1), Expected::RefusedOrUnknown).await;
    fragile.app.get("/health").await.expect(200);
    processes.iter().for_each(|pid| kill(*pid, Signal::SIGCONT).expect("it runs"));
    until("the server is ready again", async || fragile.app.get("/ready").await.status == 200).await;
    fragile.app.publish_tagged("b").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_poll_outlives_a_restart_of_the_database() {
    let mut fragile = Fragile::start().await;
    let request =
        fragile.app.client.get(format!("{}/events/subscribe?tags=a&worker_id=w:1&wait_seconds=60", fragile.app.base));
    let waiter = tokio::spawn(async move { Reply::of(request.send().await.expect("a response")).await });
    until("the worker waits", async || fragile.app.engine().hub().asleep() == 1).await;
    fragile.stop_database();
    fragile.start_database().await;
    let id = fragile.app.publish_tagged("a").await;
    assert_eq!(within_patience(waiter).await.expect("no panic").expect(200).json()["id"], id);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_poll_that_ends_while_the_database_is_stopped_is_a_204() {
    let mut fragile = Fragile::start().await;
    let request =
        fragile.app.client.get(format!("{}/events/subscribe?tags=a&worker_id=w:1&wait_seconds=2", fragile.app.base));
    let waiter = tokio::spawn(async move { Reply::of(request.send().await.expect("a response")).await });
    until("the worker waits", async || fragile.app.engine().hub().asleep() == 1).await;
    fragile.stop_database();
    within_patience(waiter).await.expect("no panic").expect(204);
}

/// The number of publishers that go on publishing while the database is away.
const PUBLISHERS: usize = 16;

/// Publishes without a pause until `stop`. Returns the ids of all events that were acknowledged, and the statuses of all
/// other responses.
async fn publish_until(app: &App, stop: &CancellationToken) -> (Vec<i64>, Vec<u16>) {
    let (mut stored, mut refused) = (Vec::new(), Vec::new());
    while !stop.is_cancelled() {
        let reply = app.post("/events", &json!({"title": "t", "tags": "load"})).await;
        match reply.status {
            201 => stored.push(reply.json()["id"].as_i64().expect("an id")),
            status => refused.push(status),
        }
    }
    (stored, refused)
}

/// Stops the database for a time while publishers publish. Returns what they got.
async fn publish_through_an_outage(fragile: &mut Fragile, away: Duration) -> (Vec<i64>, Vec<u16>) {
    let stop = CancellationToken::new();
    let app = Arc::new(App {
        server: None,
        url: fragile.app.url.clone(),
        base: fragile.app.base.clone(),
        client: http_client(),
    });
    let publishers: Vec<_> = (0..PUBLISHERS)
        .map(|_| {
            let (app, stop) = (app.clone(), stop.clone());
            tokio::spawn(async move { publish_until(&app, &stop).await })
        })
        .collect();
    let loaded = "SELECT count(*) FROM waybill.events";
    until("events arrive", async || fragile.app.count(loaded).await > 100).await;
    fragile.stop_database();
    // The outage itself has a length, which nothing else shows.
    tokio::time::sleep(away).await;
    fragile.start_database().await;
    let before = fragile.app.count(loaded).await;
    until("events arrive again", async || fragile.app.count(loaded).await > before + 100).await;
    stop.cancel();
    let (mut stored, mut refused) = (Vec::new(), Vec::new());
    for publisher in publishers {
        let (more, others) = publisher.await.expect("no panic");
        stored.extend(more);
        refused.extend(others);
    }
    (stored, refused)
}

async fn assert_all_are_stored(app: &App, acknowledged: &[i64]) {
    let list = acknowledged.iter().map(i64::to_string).collect::<Vec<_>>().join(",");
    let count = format!("SELECT count(*) FROM waybill.events WHERE id IN ({list})");
    assert_eq!(app.count(&count).await, acknowledged.len() as i64);
}

#[tokio::test(flavor = "multi_thread")]
async fn publishers_do_not_notice_that_the_database_is_away_for_two_seconds() {
    let mut fragile = Fragile::start().await;
    fragile.app.publish_tagged("warm").await;
    let (stored, refused) = publish_through_an_outage(&mut fragile, Duration::from_secs(2)).await;
    // A statement that was running when the database stopped may or may not have been carried out.
    let unknown = refused.len();
    assert!(refused.iter().all(|status| matches!(status, 429 | 503)) && unknown <= PUBLISHERS, "{refused:?}");
    assert_all_are_stored(&fragile.app, &stored).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_acknowledged_is_lost_while_the_database_is_away_for_ten_seconds() {
    let mut fragile = Fragile::start().await;
    fragile.app.publish_tagged("warm").await;
    let (stored, refused) = publish_through_an_outage(&mut fragile, Duration::from_secs(10)).await;
    // A call with too little time left when the database is back gets 429.
    assert!(refused.iter().all(|status| matches!(status, 429 | 503)), "{refused:?}");
    assert!(!refused.is_empty(), "ten seconds are longer than anybody waits");
    assert_all_are_stored(&fragile.app, &stored).await;
}
