//! Events that go through every state.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use waybill::background::{expirer, lease_reaper, promoter};
use waybill::domain::action::Action;

use super::records;
use crate::contract::witness::{CheckedServer, Coverage};
use crate::support::{App, Reply, database};

const WORKER: &str = "render-3:4127";

/// The highest id, which nothing has.
const UNKNOWN: i64 = (1 << 53) - 1;

pub(super) async fn run(coverage: &Coverage) {
    let server = CheckedServer::of(App::with_fixed_clock().await, coverage);
    publish(&server).await;
    claim(&server).await;
    repeat_after_pruning(&server).await;
    work(&server).await;
    settle_in_one_call(&server).await;
    settle_and_claim(&server).await;
    operate(&server).await;
    sweep(&server).await;
    records::run(&server).await;
    observe(&server).await;
    records::start_too_many(&server).await;
}

async fn publish(server: &CheckedServer<'_>) {
    let everything = json!({
        "title": "everything", "description": "", "tags": ["a", "b"], "event_type": "photo.uploaded",
        "labels": {"album": "summer"}, "payload": [1, {"deep": null}], "priority": -100, "max_retries": 1000,
        "backoff": {"strategy": "fixed", "seconds": 0}, "delay_seconds": 60, "ordering_key": "k",
        "correlation_id": "c", "expires_at": "2099-01-01T00:00:00+02:00",
    });
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let request = server.request("POST", "/events").header("traceparent", trace).json(&everything);
    let event = server.send(request).await.expect(201).json();
    assert_eq!(event["traceparent"], trace);
    server.post("/events", &json!({"event_type": "pushed.only"})).await.expect(201);
    server.post("/events/batch", &json!({"events": [everything, {"title": "t", "tags": "a"}]})).await.expect(201);
    publish_again(server).await;
    publish_cloud_events(server).await;
    receive_webhooks(server).await;
}

async fn publish_cloud_events(server: &CheckedServer<'_>) {
    let cloud_event = |id: &str| json!({"specversion": "1.0", "id": id, "source": "/s", "type": "made", "data": 1});
    let structured = || server.request("POST", "/events").header("content-type", "application/cloudevents+json");
    server.send(structured().body(cloud_event("1").to_string())).await.expect(201);
    server.send(structured().body(cloud_event("1").to_string())).await.expect(200);
    let binary = server.request("POST", "/events").header("ce-specversion", "1.0").header("ce-id", "2");
    server.send(binary.header("ce-source", "/s").header("ce-type", "made").body("1")).await.expect(201);
    // The schema of this response is only in the description, because a client would get a union for all publishes.
    let batch = server.request("POST", "/events").header("content-type", "application/cloudevents-batch+json");
    let batch = batch.body(json!([cloud_event("1"), cloud_event("3")]).to_string());
    let reply = Reply::of(batch.send().await.expect("a response")).await.expect(201);
    server.coverage.document.validate("/components/schemas/Receipts", &reply.json());
}

async fn publish_again(server: &CheckedServer<'_>) {
    let keyed = |title: &str| json!({"title": title, "tags": "keyed", "idempotency_key": "k", "event_id": "k"});
    let publish = async |event: Value| {
        server.send(server.request("POST", "/events").header("idempotency-key", "\"k\"").json(&event)).await
    };
    publish(keyed("a job")).await.expect(201);
    publish(keyed("a job")).await.expect(200);
    publish(keyed("another")).await.problem(422, "idempotency_key_reused");
    server.post("/events/batch", &json!({"events": [keyed("a job")]})).await.expect(201);
    server.post("/events/batch", &json!({"events": [keyed("other")]})).await.problem(422, "idempotency_key_reused");
}

async fn receive_webhooks(server: &CheckedServer<'_>) {
    for (tags, status) in [(json!("hooks,eu"), 202), (json!(["hooks"]), 200)] {
        let webhook = json!({"idempotency_key": "k", "event_type": "t", "payload": 1, "tags": tags});
        server.post("/webhooks", &webhook).await.expect(status);
    }
    let found = server.get("/webhooks?idempotency_key=k").await.expect(200).json();
    server.get(&format!("/webhooks/{}", found["id"])).await.expect(200);
    server.get("/webhooks?idempotency_key=unknown").await.problem(404, "webhook_not_found");
    server.get("/webhooks/4711").await.problem(404, "event_not_found");
}

async fn claim(server: &CheckedServer<'_>) {
    for _ in 0..5 {
        server.app.publish_tagged("claims").await;
    }
    let ask = format!("/events/subscribe?tags=claims&worker_id={WORKER}&lease_seconds=2.5");
    server.get(&ask).await.expect(200);
    server.get(&format!("{ask}&wait_seconds=0.01")).await.expect(200);
    let repeatable = json!({"worker_id": WORKER, "tags": ["claims"], "max": 3, "idempotency_key": "r1"});
    let first = server.post("/events/claim", &repeatable).await.expect(200).json();
    assert_eq!(server.post("/events/claim", &repeatable).await.expect(200).json(), first);
    server.get(&ask).await.expect(204);
    let empty = server.post("/events/claim", &json!({"worker_id": WORKER, "tags": ["claims"]})).await.expect(200);
    assert_eq!(empty.json(), json!({"events": []}));
}

/// Publishes an event and claims it.
async fn hold(server: &CheckedServer<'_>, event: Value) -> i64 {
    let tags = event["tags"].as_str().expect("tags").to_owned();
    let id = server.app.publish(event).await;
    let claimed = server.app.claim(&tags, WORKER).await.expect("an event");
    assert_eq!(claimed["id"], id);
    id
}

async fn work(server: &CheckedServer<'_>) {
    let settle = async |id: i64, verb: &str, more: Value| {
        let mut body = json!({"worker_id": WORKER});
        body.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        server.post(&format!("/events/{id}/{verb}"), &body).await
    };
    let done = hold(server, json!({"title": "done", "tags": "work"})).await;
    settle(done, "start", json!({})).await.expect(200);
    settle(done, "heartbeat", json!({"progress": {"done": 1}})).await.expect(200);
    let lease_id = server.app.event(done).await["logs"][0]["lease_id"].clone();
    let report = json!({"lease_id": lease_id, "execution_time_ms": 5, "status_code": -1, "result": [1.0]});
    assert_eq!(settle(done, "complete", report.clone()).await.expect(200).json()["repeated"], false);
    assert_eq!(settle(done, "complete", report).await.expect(200).json()["repeated"], true);
    settle(done, "complete", json!({})).await.problem(409, "already_settled");
    for verb in ["start", "heartbeat", "release", "fail"] {
        settle(done, verb, json!({})).await.problem(409, "already_settled");
    }
    settle(done, "complete", json!({"lease_id": 9_999})).await.problem(409, "already_finished");
    let failing = hold(server, json!({"title": "failing", "tags": "work", "max_retries": 2})).await;
    let why = json!({"error_message": "no", "execution_time_ms": 5, "status_code": 1, "retry_after_seconds": 0});
    settle(failing, "fail", why).await.expect(200);
    settle(failing, "complete", json!({})).await.problem(409, "already_settled");
    server.app.claim("work", WORKER).await.expect("the same again");
    settle(failing, "fail", json!({})).await.problem(400, "max_retries_exceeded");
    settle(failing, "fail", json!({})).await.expect(200);
    let hopeless = hold(server, json!({"title": "hopeless", "tags": "work"})).await;
    settle(hopeless, "fail", json!({"retryable": false})).await.problem(400, "not_retryable");
    let waiting = server.app.publish_tagged("untouched").await;
    let released = hold(server, json!({"title": "released", "tags": "work"})).await;
    settle(released, "release", json!({"delay_seconds": 5})).await.expect(200);
    for verb in ["start", "heartbeat", "release", "complete", "fail"] {
        settle(waiting, verb, json!({})).await.problem(409, "not_claimed");
        let others = hold(server, json!({"title": "others", "tags": "work"})).await;
        settle(others, verb, json!({"worker_id": "stranger:1"})).await.problem(409, "lease_lost");
    }
}

async fn settle_in_one_call(server: &CheckedServer<'_>) {
    let mut ids = Vec::new();
    for _ in 0..5 {
        ids.push(hold(server, json!({"title": "settled", "tags": "settle"})).await);
    }
    let waiting = server.app.publish_tagged("untouched").await;
    let settlements = json!([
        {"event_id": ids[0], "action": "complete", "result": {}},
        {"event_id": ids[0], "action": "complete", "result": {}},
        {"event_id": ids[0], "action": "complete"},
        {"event_id": ids[0], "action": "fail"},
        {"event_id": ids[1], "action": "fail", "error_message": "no"},
        {"event_id": ids[2], "action": "fail", "retryable": false},
        {"event_id": ids[3], "action": "release"},
        {"event_id": ids[4], "lease_id": 9_999, "action": "release"},
        {"event_id": waiting, "action": "complete"},
        {"event_id": UNKNOWN, "action": "complete"},
    ]);
    let body = json!({"worker_id": WORKER, "settlements": settlements});
    let reply = server.post("/events/settle", &body).await.expect(200).json();
    let accepted: Vec<bool> = results_of(&reply).iter().map(|result| result["accepted"] == true).collect();
    assert_eq!(accepted, [true, true, false, false, true, true, true, false, false, false]);
    assert_eq!(reply["events"], json!([]));
}

fn results_of(reply: &Value) -> &Vec<Value> {
    reply["results"].as_array().expect("results")
}

async fn settle_and_claim(server: &CheckedServer<'_>) {
    let first = hold(server, json!({"title": "first", "tags": "next"})).await;
    let second = server.app.publish(json!({"title": "second", "tags": "next", "max_retries": 1})).await;
    let claim = json!({"tags": ["next"], "max": 2, "wait_seconds": 0, "lease_seconds": 60, "idempotency_key": "n1"});
    let settle = async |settlements: Value| {
        let body = json!({"worker_id": WORKER, "settlements": settlements, "claim": claim});
        server.post("/events/settle", &body).await.expect(200).json()
    };
    let reply = settle(json!([{"event_id": first, "action": "complete"}])).await;
    assert_eq!(reply["events"][0]["id"], second);
    let reply = settle(json!([{"event_id": second, "action": "fail"}])).await;
    assert_eq!(results_of(&reply)[0]["entry"]["retry_scheduled"], false);
    assert_eq!(settle(json!([])).await["results"], json!([]));
}

/// Repeats of settlements whose log entries are deleted are answered from the deliveries' rows.
async fn repeat_after_pruning(server: &CheckedServer<'_>) {
    let mut verbs = Vec::new();
    for verb in ["start", "complete", "fail", "release"] {
        let id = hold(server, json!({"title": verb, "tags": "pruned"})).await;
        verbs.push((format!("/events/{id}/{verb}"), json!({"event_id": id, "action": verb})));
    }
    let body = json!({"worker_id": WORKER});
    for (path, _) in &verbs {
        server.post(path, &body).await.expect(200);
    }
    database::execute(&server.app.url, "DELETE FROM waybill.event_log WHERE lease_id > 0").await;
    for (path, _) in &verbs {
        let answer = server.post(path, &body).await.expect(200).json();
        assert_eq!((&answer["repeated"], answer.get("id")), (&json!(true), None));
    }
    let settlements: Vec<&Value> = verbs.iter().skip(1).map(|(_, settlement)| settlement).collect();
    let body = json!({"worker_id": WORKER, "settlements": settlements});
    let reply = server.post("/events/settle", &body).await.expect(200).json();
    assert!(results_of(&reply).iter().all(|result| result["entry"]["repeated"] == true), "{reply}");
}

async fn operate(server: &CheckedServer<'_>) {
    let post = async |path: String| server.post_empty(&path).await;
    let held = hold(server, json!({"title": "held", "tags": "operate"})).await;
    post(format!("/events/{held}/retry")).await.problem(409, "wrong_state");
    post(format!("/events/{held}/cancel?reason=obsolete")).await.expect(200);
    let beat = server.post(&format!("/events/{held}/heartbeat"), &json!({"worker_id": WORKER})).await.expect(200);
    assert_eq!(beat.json()["cancel_reason"], "obsolete");
    assert_eq!(server.get(&format!("/events/{held}")).await.expect(200).json()["cancel_reason"], "obsolete");
    post(format!("/events/{held}/reset?reason=worker_timeout")).await.expect(200);
    post(format!("/events/{held}/reset")).await.problem(409, "wrong_state");
    post(format!("/events/{held}/retry?reason=after+all")).await.expect(200);
    server.app.claim("operate", WORKER).await.expect("the same again");
    server.app.complete(held, WORKER).await.expect(200);
    post(format!("/events/{held}/cancel")).await.problem(409, "wrong_state");
    server.app.advance(40);
    for (path, filter) in [
        ("/events/reset", json!({"stale_for_seconds": 30})),
        ("/events/retry", json!({"tags": ["work"]})),
        ("/events/cancel", json!({"tags": ["untouched"], "status": "PENDING"})),
    ] {
        let count = server.post(path, &json!({"filter": filter, "dry_run": true})).await.expect(200).json();
        assert!(count["matched"].as_i64() > Some(0), "{path} {filter}: {count}");
        let body = json!({"filter": filter, "reason": "spring cleaning", "per_second": 10_000});
        let operation = server.post(path, &body).await.expect(202).json();
        let done = server.app.until_complete(&operation).await;
        assert!(done["done"].as_i64() > Some(0), "{done}");
        server.get(&format!("/operations/{}", operation["id"])).await.expect(200);
    }
}

async fn sweep(server: &CheckedServer<'_>) {
    let app = &server.app;
    let soon = (app.now() + chrono::TimeDelta::seconds(5)).to_rfc3339();
    let worthless = app.publish(json!({"title": "worthless", "tags": "time", "expires_at": soon})).await;
    app.publish(json!({"title": "later", "tags": "later", "delay_seconds": 5})).await;
    app.advance(6);
    expirer::run_once(app.engine()).await.expect("a sweep");
    promoter::run_once(app.engine()).await.expect("a sweep");
    let expired = server.get(&format!("/events/{worthless}?include_logs=true")).await.json();
    assert_eq!((&expired["status"], &expired["logs"][0]["action"]), (&json!("FAILED"), &json!("EXPIRED")));
    let poison = hold(server, json!({"title": "poison", "tags": "time"})).await;
    for _ in 0..5 {
        app.advance(301);
        lease_reaper::run_once(app.engine()).await.expect("a sweep");
        app.claim("time", WORKER).await;
    }
    let poison = server.get(&format!("/events/{poison}?include_logs=true")).await.json();
    assert_eq!(poison["status"], "FAILED");
}

async fn observe(server: &CheckedServer<'_>) {
    let list = server.get("/events?limit=2&order=desc").await.expect(200).json();
    let next = list["next"].as_str().expect("a cursor");
    server.get(&format!("/events?after={next}&limit=500&order=desc")).await.expect(200);
    server.get(&format!("/events?after={next}")).await.problem(400, "cursor_mismatch");
    server.get("/events?status=FAILED&tags=time&offset=1").await.expect(200);
    let mut seen = BTreeSet::new();
    let mut next = Some(String::new());
    while let Some(after) = next {
        let page = server.get(&format!("/logs?limit=20{after}")).await.expect(200).json();
        seen.extend(
            page["logs"].as_array().expect("logs").iter().map(|log| log["action"].as_str().expect("a word").to_owned()),
        );
        next = page["next"].as_str().map(|next| format!("&after={next}"));
    }
    assert_eq!(seen, Action::ALL.map(|action| action.as_str().to_owned()).into(), "every action was logged");
    server.get("/workers").await.expect(200);
    server.get("/workers?limit=1").await.expect(200);
    server.get("/tags").await.expect(200);
    waybill::background::stats_recorder::run_once(server.app.engine()).await.expect("a round");
    server.get("/stats").await.expect(200);
    server.get("/stats?tag=work").await.expect(200);
    server.get("/stats/history").await.expect(200);
    for path in [
        "/logs/stream",
        "/health",
        "/ready",
        "/metrics",
        "/openapi.yaml",
        "/openapi.json",
        "/docs",
        "/docs/scalar.js",
        "/problems/lease_lost",
    ] {
        server.get(path).await.expect(200);
    }
    let as_open_metrics = server.request("GET", "/metrics").header("accept", "application/openmetrics-text");
    assert!(server.send(as_open_metrics).await.expect(200).text.ends_with("# EOF\n"));
}
