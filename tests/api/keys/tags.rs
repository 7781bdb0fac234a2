//! Keys that are limited to some tags.

use serde_json::{Value, json};

use crate::support::{App, Reply};

/// Returns a server, and what the holder of a key for `billing.*` sees.
async fn limited() -> (App, App) {
    let app = App::with_keys().await;
    let key = app.make_key(json!({"scopes": ["publish", "work"], "tag_patterns": ["billing.*"]})).await;
    let holder = app.holding(&key);
    (app, holder)
}

#[track_caller]
fn refuses_tag(reply: Reply, tag: Value) {
    let problem = reply.problem(403, "tag_not_allowed");
    assert_eq!((&problem["tag"], &problem["effect"]), (&tag, &json!("none")));
}

#[tokio::test(flavor = "multi_thread")]
async fn it_publishes_only_events_whose_tags_are_all_allowed() {
    let (app, holder) = limited().await;
    let event = |tags: &str| json!({"title": "t", "tags": tags});
    holder.publish(event("billing.a,billing.b")).await;
    refuses_tag(holder.post("/events", &event("billing.a,mail")).await, json!("mail"));
    refuses_tag(holder.post("/events", &event("billing")).await, json!("billing"));
    refuses_tag(holder.post("/events", &json!({"event_type": "pushed.only"})).await, json!(null));
    let batch = json!({"events": [event("billing.a"), event("mail")]});
    refuses_tag(holder.post("/events/batch", &batch).await, json!("mail"));
    assert_eq!(app.count("SELECT count(*) FROM waybill.events").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn it_claims_only_from_allowed_tags() {
    let (app, holder) = limited().await;
    app.publish_tagged("billing.a,mail").await;
    refuses_tag(holder.get("/events/subscribe?tags=mail,billing.a&worker_id=w:1").await, json!("mail"));
    let claim = json!({"worker_id": "w:1", "tags": ["mail"]});
    refuses_tag(holder.post("/events/claim", &claim).await, json!("mail"));
    let settle = json!({"worker_id": "w:1", "settlements": [], "claim": {"tags": ["mail"]}});
    let settled = holder.post("/events/settle", &settle).await.expect(200).json();
    assert_eq!(
        (&settled["claim_problem"]["code"], &settled["claim_problem"]["tag"]),
        (&json!("tag_not_allowed"), &json!("mail"))
    );
    assert_eq!(app.count("SELECT count(*) FROM waybill.deliveries WHERE status = 'PROCESSING'").await, 0);
    assert!(holder.claim("billing.a", "w:1").await.is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_claim_returns_no_event_that_another_key_has_claimed_with_other_tags() {
    let (app, holder) = limited().await;
    let claim = |tag: &str, key: &str| json!({"worker_id": "w:1", "tags": [tag], "idempotency_key": key});
    let foreign = app.publish_tagged("mail").await;
    let claimed = app.post("/events/claim", &claim("mail", "r1")).await.expect(200).json();
    assert_eq!(claimed["events"][0]["id"], foreign);
    let own = app.publish_tagged("billing.a,mail").await;
    refuses_tag(holder.post("/events/claim", &claim("billing.a", "r1")).await, json!(null));
    assert_eq!(app.actions(own).await, [""; 0], "nothing was claimed instead");
    // An event with one of its tags is returned, whoever has claimed it.
    app.post("/events/claim", &claim("mail", "r2")).await.expect(200);
    let repeated = holder.post("/events/claim", &claim("billing.a", "r2")).await.expect(200).json();
    assert_eq!(repeated["events"][0]["id"], own);
    let repeated = app.post("/events/claim", &claim("mail", "r1")).await.expect(200).json();
    assert_eq!(repeated["events"], claimed["events"], "the refused call has changed nothing");
}

/// Publishes an event with these fields as the administrator, and claims it as worker `w:1`. Returns its id and lease.
async fn held(app: &App, fields: Value) -> (i64, Value) {
    let mut event = json!({"title": "t"});
    event.as_object_mut().expect("an object").extend(fields.as_object().cloned().expect("an object"));
    let id = app.publish(event.clone()).await;
    let tag = event["tags"].as_str().expect("tags").split(',').next().expect("a tag").to_owned();
    let claimed = app.claim(&tag, "w:1").await.expect("the event");
    assert_eq!(claimed["id"], id);
    (id, claimed["lease_id"].clone())
}

#[tokio::test(flavor = "multi_thread")]
async fn it_completes_only_events_with_one_of_its_tags() {
    let (app, holder) = limited().await;
    // With an ordering key the completion is judged, otherwise it takes the fast path.
    for key in [json!(null), json!("k")] {
        let (foreign, lease) = held(&app, json!({"tags": "mail,billing", "ordering_key": key})).await;
        let body = json!({"worker_id": "w:1", "lease_id": lease});
        let complete = format!("/events/{foreign}/complete");
        refuses_tag(holder.post(&complete, &body).await, json!(null));
        assert_eq!(app.event(foreign).await["status"], "PROCESSING");
        app.post(&complete, &body).await.expect(200);
        let (own, lease) = held(&app, json!({"tags": "mail,billing.a", "ordering_key": key})).await;
        let body = json!({"worker_id": "w:1", "lease_id": lease});
        holder.post(&format!("/events/{own}/complete"), &body).await.expect(200);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_settlement_of_a_foreign_event_is_refused() {
    let (app, holder) = limited().await;
    let (id, lease) = held(&app, json!({"tags": "mail"})).await;
    let body = json!({"worker_id": "w:1", "lease_id": lease});
    for verb in ["start", "heartbeat", "complete", "fail", "release"] {
        refuses_tag(holder.post(&format!("/events/{id}/{verb}"), &body).await, json!(null));
    }
    let (own, own_lease) = held(&app, json!({"tags": "billing.a"})).await;
    let settlements = json!([
        {"event_id": id, "lease_id": lease, "action": "complete"},
        {"event_id": own, "lease_id": own_lease, "action": "complete"},
    ]);
    let batch = json!({"worker_id": "w:1", "settlements": settlements});
    let results = holder.post("/events/settle", &batch).await.expect(200).json()["results"].clone();
    assert_eq!((&results[0]["accepted"], &results[0]["problem"]["code"]), (&json!(false), &json!("tag_not_allowed")));
    assert_eq!(results[1]["accepted"], true);
    assert_eq!(app.actions(id).await, ["PICKED"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn exact_patterns_and_many_patterns_work_on_the_fast_path() {
    let app = App::with_keys().await;
    let fields = json!({"scopes": ["work"], "tag_patterns": ["a", "50%.*", "x_y.*"]});
    let holder = app.holding(&app.make_key(fields).await);
    for (tag, is_allowed) in [
        ("a", true),
        ("aa", false),
        ("50%.b", true),
        ("505.b", false),
        ("x_y.z", true),
        ("xay.z", false),
        ("x_y", false),
    ] {
        let (id, lease) = held(&app, json!({"tags": tag})).await;
        let reply =
            holder.post(&format!("/events/{id}/complete"), &json!({"worker_id": "w:1", "lease_id": lease})).await;
        assert_eq!(reply.status, if is_allowed { 200 } else { 403 }, "{tag}");
    }
}

/// A source would otherwise publish for the key what the key itself may not.
#[tokio::test(flavor = "multi_thread")]
async fn it_gives_sources_only_tags_that_are_allowed() {
    let app = App::with_keys().await;
    let holder = app.holding(&app.make_key(json!({"scopes": ["operate"], "tag_patterns": ["billing.*"]})).await);
    let source = |tags: Value| json!({"name": "s", "verify": {"scheme": "none"}, "tags": tags});
    refuses_tag(holder.post("/sources", &source(json!(["billing.a", "mail"]))).await, json!("mail"));
    refuses_tag(holder.post("/sources", &source(json!([]))).await, json!(null));
    let path = format!("/sources/{}", holder.source(source(json!(["billing.a"]))).await["id"]);
    refuses_tag(holder.patch(&path, &json!({"tags": ["mail"]})).await, json!("mail"));
    refuses_tag(holder.patch(&path, &json!({"tags": null})).await, json!(null));
    holder.patch(&path, &json!({"tags": "mail"})).await.names(&["tags"]);
    holder.patch(&path, &json!({"tags": ["billing.b"], "name": "t"})).await.expect(200);
    app.patch(&path, &json!({"tags": ["mail"]})).await.expect(200);
    holder.patch(&path, &json!({"is_active": false})).await.expect(200);
}
