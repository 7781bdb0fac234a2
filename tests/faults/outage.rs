//! The whole database goes away, and comes back.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tokio::task::block_in_place;
use tokio_util::sync::CancellationToken;

use super::Fragile;
use crate::memory::memory;
use crate::support::process::{Process, waybill};
use crate::support::{App, ClusterDir, Reply, http_client, until, within_patience};

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

/// The number of publishers when the database stops, and of those that come while it is away.
const PUBLISHERS: usize = 16;

/// What a response may take more than [`ANSWER_WITHIN`], because the publishers share a busy machine with the server.
const MACHINE_MARGIN: Duration = Duration::from_secs(2);

/// The time for which a publish waits for the database, less a margin for the machine.
const WAITS_AT_LEAST: Duration = Duration::from_millis(3_500);

/// The ways to publish.
const DOORS: [&str; 4] = ["/events", "/events/batch", "/webhooks", "/in"];

/// A publish and its response.
#[derive(Debug)]
struct Answered {
    door: &'static str,
    number: usize,
    sent_at: Instant,
    took: Duration,
    reply: Reply,
}

impl Answered {
    fn is_stored(&self) -> bool {
        matches!((self.door, self.reply.status), ("/events" | "/events/batch", 201) | ("/webhooks" | "/in", 202))
    }

    /// Asserts that the response is one of those documented for a database that is away. Returns its code.
    fn assert_is_documented(&self) -> String {
        let code = self.reply.json()["code"].as_str().unwrap_or_default().to_owned();
        let is_known = [(503, "database_unavailable"), (503, "outcome_unknown"), (429, "overloaded")]
            .contains(&(self.reply.status, &code));
        assert!(is_known && self.reply.header("retry-after") == Some("1"), "{self:?}");
        code
    }
}

/// Publishers that publish one event after the other until they are told to stop, and number their events.
struct Publishers {
    app: App,
    /// The path of a source.
    source: String,
    next: AtomicUsize,
    stop: CancellationToken,
}

impl Publishers {
    async fn publish(&self, door: &'static str) -> Answered {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let payload = json!({"number": number});
        let event = json!({"title": "t", "tags": "load", "payload": payload});
        let sent_at = Instant::now();
        let reply = match door {
            "/events" => self.app.post(door, &event).await,
            "/events/batch" => self.app.post(door, &json!({"events": [event]})).await,
            "/webhooks" => {
                let key = number.to_string();
                self.app.post(door, &json!({"idempotency_key": key, "event_type": "load", "payload": payload})).await
            }
            _ => self.app.post(&self.source, &payload).await,
        };
        Answered { door, number, sent_at, took: sent_at.elapsed(), reply }
    }

    async fn publish_until_stopped(&self, door: &'static str) -> Vec<Answered> {
        let mut answered = Vec::new();
        while !self.stop.is_cancelled() {
            answered.push(self.publish(door).await);
        }
        answered
    }
}

/// An outage through which publishers have published.
struct Outage {
    /// The time at which the database began to stop, and the time from which on it was gone.
    stopping_at: Instant,
    gone_at: Instant,
    /// The time at which the server was ready again.
    back_at: Instant,
    answered: Vec<Answered>,
}

impl Outage {
    fn refused(&self) -> impl Iterator<Item = &Answered> {
        self.answered.iter().filter(|answered| !answered.is_stored())
    }

    /// Asserts that every event that was acknowledged is stored, and stored once.
    async fn assert_all_acknowledged_are_stored(&self, app: &App) {
        let stored = self.answered.iter().filter(|answered| answered.is_stored());
        let numbers: Vec<String> = stored.map(|answered| answered.number.to_string()).collect();
        let of_events = format!(
            "FROM waybill.events WHERE (payload->>'number')::bigint = ANY('{{{}}}'::bigint[])",
            numbers.join(",")
        );
        let distinct = format!("SELECT count(DISTINCT (payload->>'number')::bigint) {of_events}");
        assert_eq!(app.count(&distinct).await, numbers.len() as i64);
        assert_eq!(app.count(&format!("SELECT count(*) {of_events}")).await, numbers.len() as i64);
    }
}

/// Stops the database for a time while publishers publish through every door.
async fn publish_through_an_outage(fragile: &mut Fragile, away: Duration) -> Outage {
    let source = fragile.app.source(json!({"verify": {"scheme": "none"}})).await;
    let publishers = Arc::new(Publishers {
        app: fragile.app.as_stranger(),
        source: source["path"].as_str().expect("a path").to_owned(),
        next: AtomicUsize::new(0),
        stop: CancellationToken::new(),
    });
    let spawn = |n: usize| {
        let publishers = publishers.clone();
        tokio::spawn(async move { publishers.publish_until_stopped(DOORS[n % DOORS.len()]).await })
    };
    let mut running: Vec<_> = (0..PUBLISHERS).map(spawn).collect();
    let loaded = "SELECT count(*) FROM waybill.events";
    until("events arrive", async || fragile.app.count(loaded).await > 100).await;
    let stopping_at = Instant::now();
    fragile.stop_database();
    let gone_at = Instant::now();
    // The first publishers wait for what they have sent before. These come while the database is away.
    running.extend((0..PUBLISHERS).map(spawn));
    // The outage itself has a length, which nothing else shows.
    tokio::time::sleep(away).await;
    fragile.start_database().await;
    let back_at = Instant::now();
    let before = fragile.app.count(loaded).await;
    until("events arrive again", async || fragile.app.count(loaded).await > before + 100).await;
    publishers.stop.cancel();
    let answered = within_patience(join_all(running)).await;
    let answered = answered.into_iter().flat_map(|each| each.expect("no panic")).collect();
    Outage { stopping_at, gone_at, back_at, answered }
}

#[tokio::test(flavor = "multi_thread")]
async fn publishers_do_not_notice_that_the_database_is_away_for_two_seconds() {
    let mut fragile = Fragile::start().await;
    let outage = publish_through_an_outage(&mut fragile, Duration::from_secs(2)).await;
    let mut in_flight = 0;
    for refused in outage.refused() {
        // A request that was under way while the database stopped may or may not have been carried out.
        if refused.sent_at < outage.gone_at {
            let code = refused.assert_is_documented();
            assert!(["outcome_unknown", "database_unavailable"].contains(&code.as_str()), "{refused:?}");
            in_flight += usize::from(refused.sent_at < outage.stopping_at);
            continue;
        }
        // On a busy machine, PostgreSQL may take so long to start that the outage was not a short one.
        let waited = outage.back_at.saturating_duration_since(refused.sent_at);
        assert!(waited > WAITS_AT_LEAST, "{waited:?} before the database was back: {refused:?}");
        refused.assert_is_documented();
    }
    assert!(in_flight <= PUBLISHERS, "{in_flight} of {PUBLISHERS} publishers had a request under way");
    for door in DOORS {
        let during = |answered: &&Answered| (outage.gone_at..outage.back_at).contains(&answered.sent_at);
        let waited = outage.answered.iter().filter(during).any(|answered| answered.door == door);
        assert!(waited, "nothing was sent to {door} during the outage");
    }
    outage.assert_all_acknowledged_are_stored(&fragile.app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_acknowledged_is_lost_while_the_database_is_away_for_ten_seconds() {
    let mut fragile = Fragile::start().await;
    let outage = publish_through_an_outage(&mut fragile, Duration::from_secs(10)).await;
    for answered in &outage.answered {
        assert!(answered.took < ANSWER_WITHIN + MACHINE_MARGIN, "{answered:?}");
    }
    outage.refused().for_each(|refused| drop(refused.assert_is_documented()));
    for door in DOORS {
        let is_refused = outage.refused().any(|refused| refused.door == door && refused.reply.status == 503);
        assert!(is_refused, "ten seconds are longer than anybody waits at {door}");
    }
    outage.assert_all_acknowledged_are_stored(&fragile.app).await;
}

/// The number of publishers with bodies of a megabyte. Their bodies alone exceed the memory that the test allows.
const LARGE_PUBLISHERS: usize = 500;

#[tokio::test(flavor = "multi_thread")]
async fn hundreds_of_publishers_with_large_bodies_take_bounded_memory_while_the_database_is_away() {
    let cluster_dir = ClusterDir::with_cluster();
    let cluster = cluster_dir.start();
    let server = Process::start(waybill(&["serve", "--bind=127.0.0.1:0", "--database-url", &cluster.url("postgres")]));
    server.app.publish_tagged("warm").await;
    block_in_place(|| cluster.stop()).expect("PostgreSQL stops");
    // All share one copy of the body, which is never freed.
    let event: &'static str =
        json!({"title": "t", "tags": "large", "payload": "x".repeat(1_000_000)}).to_string().leak();
    let client = http_client();
    let replies = join_all((0..LARGE_PUBLISHERS).map(async |_| {
        let request = client.post(format!("{}/events", server.app.base)).header("content-type", "application/json");
        Reply::of(request.body(event).send().await.expect("a response")).await
    }));
    let replies = within_patience(replies).await;
    let highest = memory(&server, "VmHWM");
    let waited = replies.iter().filter(|reply| reply.status == 503).count();
    eprintln!("{highest} KB at most; {waited} of {LARGE_PUBLISHERS} waited for the database");
    for reply in replies {
        assert!([429, 503].contains(&reply.status), "{reply:?}");
        let code = if reply.status == 429 { "overloaded" } else { "database_unavailable" };
        reply.problem(if code == "overloaded" { 429 } else { 503 }, code);
    }
    assert!(waited > 0, "nobody has waited");
    assert!(highest <= LARGE_PUBLISHERS * 900, "{highest} KB");
    let _cluster = block_in_place(|| cluster_dir.start());
    until("the server is ready again", async || server.app.get("/ready").await.status == 200).await;
    server.app.post_text("/events", event).await.expect(201);
    server.stop().await;
}
