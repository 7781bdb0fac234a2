use std::collections::HashSet;

use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::{events, job};
use crate::support::locks::HeldRow;
use crate::support::process::{Process, waybill};
use crate::support::{App, HeldTable, Options, Reply, ledger, until, within_patience};

const CALLERS: usize = 64;

async fn two_servers() -> [App; 2] {
    let one = App::start().await;
    let other = App::start_with(Options { url: Some(one.url.clone()), ..Options::default() }).await;
    [one, other]
}

/// Sends the same body from all callers at once, to both servers in turn.
async fn send_all(servers: &[App; 2], path: &str, body: impl Fn(usize) -> Value) -> Vec<Reply> {
    join_all((0..CALLERS).map(|n| {
        let (server, body) = (&servers[n % 2], body(n));
        async move { server.post(path, &body).await }
    }))
    .await
}

fn post(app: &App, path: &str, body: &Value) -> JoinHandle<Reply> {
    let request = app.client.post(format!("{}{path}", app.base)).json(body);
    tokio::spawn(async move { Reply::of(request.send().await.expect("a response")).await })
}

fn id_of(reply: &Reply) -> i64 {
    reply.json()["id"].as_i64().expect("an id")
}

#[tokio::test(flavor = "multi_thread")]
async fn of_sixty_four_publishers_at_two_servers_one_stores_the_event_and_all_get_it() {
    let servers = two_servers().await;
    for round in 0..5 {
        let replies = send_all(&servers, "/events", |_| job(&format!("k{round}"))).await;
        let created = replies.iter().filter(|reply| reply.status == 201).count();
        assert_eq!((created, replies.iter().filter(|reply| reply.status == 200).count()), (1, CALLERS - 1));
        assert_eq!(replies.iter().map(id_of).collect::<HashSet<_>>().len(), 1);
        assert_eq!(events(&servers[0]).await, round + 1);
    }
    ledger::check(&servers[0]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_sixty_four_contents_under_one_key_one_is_stored_and_the_others_are_refused() {
    let servers = two_servers().await;
    let other = |n: usize| json!({"title": format!("job {n}"), "tags": "a", "idempotency_key": "k"});
    let replies = send_all(&servers, "/events", other).await;
    let statuses = |status| replies.iter().filter(|reply| reply.status == status).count();
    assert_eq!((statuses(201), statuses(422)), (1, CALLERS - 1));
    assert_eq!(events(&servers[0]).await, 1);
}

/// Repeats are found by the statement, among the requests of a batch, and within a request.
#[tokio::test(flavor = "multi_thread")]
async fn every_repeat_is_counted_however_it_is_found() {
    const SINGLE: usize = 8;
    let app = App::start().await;
    app.publish(job("known")).await;
    let mut held = HeldTable::lock(&app.url, "waybill.idempotency_keys").await;
    let mut calls = Vec::new();
    // The first two leave at once. The others gather, and are one batch.
    for ahead in 1..=2 {
        calls.push(post(&app, "/events", &job("k")));
        held.until_blocked_statements(ahead).await;
    }
    calls.push(post(&app, "/events/batch", &json!({"events": [job("k"), job("l"), job("l"), job("known")]})));
    calls.extend((2..SINGLE).map(|_| post(&app, "/events", &job("k"))));
    until("the others are queued", async || app.engine().queued().publish == SINGLE - 1).await;
    held.unlock().await;
    for reply in join_all(calls).await {
        let reply = reply.expect("no panic");
        assert!([200, 201].contains(&reply.status), "{reply:?}");
    }
    let mut other = job("known");
    other["title"] = json!("another");
    app.post("/events", &other).await.problem(422, "idempotency_key_reused");
    let metrics = app.get("/metrics").await.expect(200).text;
    // `k` came nine times and `l` twice, and `known` again.
    assert!(metrics.contains("\nwaybill_events_repeated_total 10\n"), "{metrics}");
    assert!(metrics.contains("\nwaybill_events_received_total 3\n"), "{metrics}");
}

/// The batches have the same keys in different orders, and must not wait for each other in a circle.
#[tokio::test(flavor = "multi_thread")]
async fn batches_with_the_same_keys_in_other_orders_store_each_event_once() {
    let servers = two_servers().await;
    let batch = |n: usize| {
        let mut items: Vec<Value> = (0..10).map(|key| job(&format!("k{key}"))).collect();
        items.rotate_left(n % 10);
        if n.is_multiple_of(3) {
            items.reverse();
        }
        json!({"events": items})
    };
    let replies = send_all(&servers, "/events/batch", batch).await;
    let mut stored = 0;
    for reply in replies {
        let receipts = reply.expect(201).json()["events"].as_array().expect("events").clone();
        stored += receipts.iter().filter(|receipt| receipt["repeated"] == false).count();
    }
    assert_eq!((stored, events(&servers[0]).await), (10, 10));
    ledger::check(&servers[0]).await;
}

/// Another server has stored the key, and has not committed yet.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_whose_first_publish_is_not_committed_yet_is_waited_for() {
    let app = App::start().await;
    let webhook = json!({"idempotency_key": "k", "event_type": "t"});
    let known = app.publish_tagged("a").await;
    let key = format!(
        "INSERT INTO waybill.idempotency_keys (namespace_id, origin, key, event_id, fingerprint, created_at) \
         VALUES (1, -1, 'k', {known}, '', now())"
    );
    let held = HeldRow::with_uncommitted(&app, &key).await;
    let second = post(&app, "/webhooks", &webhook);
    app.until_blocked_calls(1).await;
    held.unlock().await;
    assert_eq!(id_of(&second.await.expect("no panic").expect(200)), known);
}

/// Sends the same bodies to a server that is killed in the middle and to another one. Asserts that all responses name
/// the same events.
async fn kill_a_server_in_the_middle(path: &str, per_request: i64, body: impl Fn(i64) -> Value) {
    let front = App::start().await;
    for round in 0..3 {
        let serve = ["serve", "--bind", "127.0.0.1:0", "--database-url", &front.url];
        let doomed = tokio::task::block_in_place(|| Process::start(waybill(&serve)));
        let mut held = HeldTable::lock(&front.url, "waybill.idempotency_keys").await;
        let publish = |server: &App| {
            let request = server.client.post(format!("{}{path}", server.base)).json(&body(round));
            tokio::spawn(async move { Some(Reply::of(request.send().await.ok()?).await) })
        };
        let of_doomed: Vec<_> = (0..CALLERS / 2).map(|_| publish(&doomed.app)).collect();
        held.until_blocked_statements(1).await;
        let of_front: Vec<_> = (0..CALLERS / 2).map(|_| publish(&front)).collect();
        doomed.kill_9().await;
        held.unlock().await;
        // Their responses may be cut off anywhere.
        join_all(of_doomed).await;
        let mut answers = HashSet::new();
        for call in of_front {
            let reply = call.await.expect("no panic").expect("a response");
            // The first of them is 201, unless the killed server's statement was carried out after all.
            assert!(matches!(reply.status, 200 | 201), "{reply:?}");
            answers.insert(ids_of(&reply));
        }
        let stored = (round + 1) * per_request;
        until("the killed server's statement has ended", async || events(&front).await == stored).await;
        answers.insert(ids_of(&front.post(path, &body(round)).await));
        assert_eq!(answers.len(), 1, "{answers:?}");
        assert_eq!(answers.iter().flatten().collect::<HashSet<_>>().len() as i64, per_request);
        assert_eq!(events(&front).await, stored);
    }
    ledger::check(&front).await;
}

/// Returns the ids in the response to a publish or a batch.
fn ids_of(reply: &Reply) -> Vec<i64> {
    let body = reply.json();
    let receipts = body["events"].as_array().cloned().unwrap_or_else(|| vec![body]);
    receipts.iter().map(|receipt| receipt["id"].as_i64().expect("an id")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn duplicates_through_a_server_that_is_killed_in_the_middle_are_one_event() {
    kill_a_server_in_the_middle("/events", 1, |round| job(&format!("k{round}"))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn batches_through_a_server_that_is_killed_in_the_middle_are_the_same_events() {
    let batch = |round| json!({"events": (0..5).map(|n| job(&format!("k{round}-{n}"))).collect::<Vec<_>>()});
    kill_a_server_in_the_middle("/events/batch", 5, batch).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_event_is_not_handed_over_to_a_waiting_worker() {
    let app = App::start().await;
    let id = app.publish(job("k")).await;
    app.claim("a", "w:1").await.expect("the event");
    app.complete(id, "w:1").await.expect(200);
    let path = format!("{}/events/subscribe?tags=a&worker_id=w:2&wait_seconds=60", app.base);
    let request = app.client.get(path);
    let waiter = tokio::spawn(async move { Reply::of(request.send().await.expect("a response")).await });
    until("the worker waits", async || app.engine().hub().asleep() == 1).await;
    app.post("/events", &job("k")).await.expect(200);
    app.post("/events/batch", &json!({"events": [job("k")]})).await.expect(201);
    assert!(!waiter.is_finished());
    // In one request, the new event is handed over and the repeated one is not.
    let receipts = app.post("/events/batch", &json!({"events": [job("k"), job("new")]})).await.expect(201).json();
    let event = within_patience(waiter).await.expect("no panic").expect(200).json();
    assert_eq!(event["id"], receipts["events"][1]["id"]);
    assert_eq!(app.actions(id).await, ["PICKED", "COMPLETED"]);
    ledger::check(&app).await;
}

/// Requests that share keys are stored by one statement, which gets the shared events once. Their pushes are numbered
/// anew.
#[tokio::test(flavor = "multi_thread")]
async fn pushes_of_requests_that_share_keys_in_a_batch_are_of_the_right_events() {
    let app = App::start().await;
    // Nothing listens there: what matters is which pushes there are.
    app.subscribe("http://127.0.0.1:9/all", json!({"event_types": ["counted"]})).await;
    app.subscribe("http://127.0.0.1:9/odd", json!({"filter": {"payload.parity": "odd"}})).await;
    let item = |n: i64| {
        let parity = if n % 2 == 0 { "even" } else { "odd" };
        json!({"event_type": "counted", "payload": {"n": n, "parity": parity}, "idempotency_key": format!("k{n}")})
    };
    let batch = |numbers: &[i64]| json!({"events": numbers.iter().map(|n| item(*n)).collect::<Vec<_>>()});
    let mut held = HeldTable::lock(&app.url, "waybill.idempotency_keys").await;
    let mut ahead = Vec::new();
    for blocked in 1..=2 {
        ahead.push(post(&app, "/events", &job(&format!("ahead {blocked}"))));
        held.until_blocked_statements(blocked).await;
    }
    let requests =
        [&[0, 1, 2, 3][..], &[7, 1, 4, 3, 5], &[6, 2, 9]].map(|numbers| post(&app, "/events/batch", &batch(numbers)));
    until("the requests are one batch", async || app.engine().queued().publish == requests.len()).await;
    held.unlock().await;
    for call in ahead.into_iter().chain(requests) {
        within_patience(call).await.expect("no panic").expect(201);
    }
    let pushes = "FROM waybill.deliveries d JOIN waybill.events e ON e.id = d.event_id \
                  JOIN waybill.subscriptions s ON s.id = d.subscription_id WHERE s.url LIKE";
    assert_eq!(app.count(&format!("SELECT count(DISTINCT e.payload->>'n') {pushes} '%/all'")).await, 9);
    assert_eq!(app.count(&format!("SELECT count(*) {pushes} '%/all'")).await, 9);
    let odd = format!("{pushes} '%/odd' AND e.payload->>'parity' = 'odd'");
    assert_eq!(app.count(&format!("SELECT count(DISTINCT e.payload->>'n') {odd}")).await, 5);
    assert_eq!(app.count(&format!("SELECT count(*) {pushes} '%/odd'")).await, 5);
    ledger::check(&app).await;
}
