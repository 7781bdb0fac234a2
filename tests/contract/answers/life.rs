//! Events that go through every state.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use waybill::background::{expirer, lease_reaper, promoter};
use waybill::domain::action::Action;

use super::records;
use crate::contract::witness::{CheckedServer, Coverage};
use crate::support::{App, database};

const WORKER: &str = "render-3:4127";

pub(super) async fn run(coverage: &Coverage) {
    let server = CheckedServer::of(App::with_fixed_clock().await, coverage);
    publish(&server).await;
    claim(&server).await;
    repeat_after_pruning(&server).await;
    work(&server).await;
    settle_in_one_call(&server).await;
    settle_with_next(&server).await;
    operate(&server).await;
    sweep(&server).await;
    records::run(&server).await;
    observe(&server).await;
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
}

async fn claim(server: &CheckedServer<'_>) {
    for _ in 0..5 {
        server.app.publish_tagged("claims").await;
    }
    let ask = format!("/events/subscribe?tags=claims&worker_id={WORKER}");
    server.get(&ask).await.expect(200);
    server.get(&format!("{ask}&max=2")).await.expect(200);
    let repeatable = json!({"worker_id": WORKER, "tags": ["claims"], "max": 2, "request_id": "r1"});
    let first = server.post("/events/claim", &repeatable).await.expect(200).json();
    assert_eq!(server.post("/events/claim", &repeatable).await.expect(200).json(), first);
    server.get(&ask).await.expect(204);
    server.post("/events/claim", &json!({"worker_id": WORKER, "tags": "claims"})).await.expect(204);
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
    let results = json!([
        {"event_id": ids[0], "action": "complete", "result": {}},
        {"event_id": ids[0], "action": "complete", "result": {}},
        {"event_id": ids[0], "action": "complete"},
        {"event_id": ids[0], "action": "fail"},
        {"event_id": ids[1], "action": "fail", "error_message": "no"},
        {"event_id": ids[2], "action": "fail", "retryable": false},
        {"event_id": ids[3], "action": "release"},
        {"event_id": ids[4], "lease_id": 9_999, "action": "release"},
        {"event_id": waiting, "action": "complete"},
        {"event_id": i64::MAX, "action": "complete"},
    ]);
    let reply = server.post("/events/settle", &json!({"worker_id": WORKER, "results": results})).await.expect(200);
    let statuses: Vec<Value> =
        reply.json()["results"].as_array().expect("results").iter().map(|outcome| outcome["status"].clone()).collect();
    assert_eq!(statuses, [200, 200, 409, 409, 200, 400, 200, 409, 409, 404]);
}

async fn settle_with_next(server: &CheckedServer<'_>) {
    let first = hold(server, json!({"title": "first", "tags": "next"})).await;
    let second = server.app.publish(json!({"title": "second", "tags": "next", "max_retries": 1})).await;
    let body = json!({"worker_id": WORKER});
    let path = format!("/events/{first}/complete?next=true&tags=next&lease=60");
    let reply = server.post(&path, &body).await.expect(200).json();
    assert_eq!(reply["next"]["id"], second);
    let path = format!("/events/{second}/fail?next=true&tags=next&wait=0");
    let reply = server.post(&path, &body).await.expect(200).json();
    assert_eq!((&reply["settled"]["code"], &reply["next"]), (&json!("max_retries_exceeded"), &Value::Null));
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
    let results: Vec<&Value> = verbs.iter().skip(1).map(|(_, result)| result).collect();
    let outcomes = server.post("/events/settle", &json!({"worker_id": WORKER, "results": results})).await.expect(200);
    assert!(outcomes.json()["results"].as_array().is_some_and(|all| all.iter().all(|one| one["repeated"] == true)));
    let path = format!("{}?next=true&tags=pruned", verbs[1].0);
    assert_eq!(server.post(&path, &body).await.expect(200).json()["settled"]["repeated"], true);
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
    let count = post("/events/reset?stale_for=30&dry_run=true".into()).await.expect(200).json();
    assert!(count["reset"].as_i64() > Some(0), "{count}");
    post("/events/reset?reason=spring+cleaning".into()).await.expect(200);
    post("/events/retry?tags=work&dry_run=true".into()).await.expect(200);
    let count = post("/events/retry".into()).await.expect(200).json();
    assert!(count["retried"].as_i64() > Some(0), "{count}");
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
    server.get(&format!("/events?after={next}&limit=500")).await.expect(200);
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
    for path in ["/health", "/ready", "/metrics", "/openapi.yaml", "/docs", "/docs/scalar.js"] {
        server.get(path).await.expect(200);
    }
    server.get("/").await.expect(302);
}
