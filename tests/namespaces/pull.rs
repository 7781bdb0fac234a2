//! Two namespaces with the same tags, keys and workers: publishing, claiming and settling.

use futures_util::future::join_all;
use serde_json::{Value, json};

use super::{id_of, two_namespaces};
use crate::support::{App, ledger};

fn same_words() -> Value {
    json!({"title": "a job", "tags": "a,b", "ordering_key": "k", "correlation_id": "c", "event_type": "t"})
}

async fn claim_batch(app: &App, key: Option<&str>) -> Vec<i64> {
    let body = json!({"tags": ["a"], "worker_id": "w:1", "max": 10, "idempotency_key": key});
    let events = app.post("/events/claim", &body).await.expect(200).json();
    events["events"].as_array().expect("events").iter().map(id_of).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_gets_only_events_of_its_namespace() {
    let app = App::start().await;
    let (north, south) = two_namespaces(&app).await;
    let (one, two) = (north.publish(same_words()).await, south.publish(same_words()).await);
    assert!(app.claim("a,b", "w:1").await.is_none());
    assert_eq!(id_of(&north.claim("a", "w:1").await.expect("an event")), one);
    assert!(north.claim("a,b", "w:2").await.is_none());
    // The same ordering key in another namespace is another key.
    assert_eq!(id_of(&south.claim("a", "w:1").await.expect("an event")), two);
    for (own, other, id) in [(&north, &south, one), (&south, &north, two)] {
        other.complete(id, "w:1").await.problem(404, "event_not_found");
        own.complete(id, "w:1").await.expect(200);
        own.complete(id, "w:1").await.expect(200);
        assert_eq!(own.actions(id).await, ["PICKED", "COMPLETED"]);
    }
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_key_has_an_order_of_its_own_in_each_namespace() {
    let app = App::start().await;
    let (north, south) = two_namespaces(&app).await;
    let mut ids = Vec::new();
    for _ in 0..2 {
        ids.push((north.publish(same_words()).await, south.publish(same_words()).await));
    }
    for (one, two) in ids {
        assert_eq!(id_of(&north.claim("a", "w:1").await.expect("an event")), one);
        assert!(north.claim("a", "w:2").await.is_none());
        assert_eq!(id_of(&south.claim("b", "w:1").await.expect("an event")), two);
        north.complete(one, "w:1").await.expect(200);
        south.complete(two, "w:1").await.expect(200);
    }
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_idempotency_key_of_the_same_worker_is_another_request_in_another_namespace() {
    let app = App::start().await;
    let (north, south) = two_namespaces(&app).await;
    let (one, two) = (north.publish_tagged("a").await, south.publish_tagged("a").await);
    for _ in 0..2 {
        assert_eq!(claim_batch(&north, Some("key")).await, [one]);
        assert_eq!(claim_batch(&south, Some("key")).await, [two]);
    }
    assert!(claim_batch(&app, Some("key")).await.is_empty());
}

/// Calls of many namespaces are settled in one batch, and some of them are about events of others.
#[tokio::test(flavor = "multi_thread")]
async fn calls_of_many_namespaces_at_once_are_settled_each_in_its_own() {
    let app = App::start().await;
    let mut teams = Vec::new();
    for n in 0..20 {
        teams.push(app.namespace(&format!("team-{n}")).await);
    }
    let ids: Vec<i64> = join_all(teams.iter().map(|team| team.publish(same_words()))).await;
    let claims = join_all(teams.iter().map(|team| team.claim("a", "w:1"))).await;
    let claimed: Vec<i64> = claims.iter().map(|event| id_of(event.as_ref().expect("an event"))).collect();
    assert_eq!(claimed, ids);
    let settle = |(n, team): (usize, &App)| {
        let (team, own, other) = (team.in_namespace(&format!("team-{n}")), ids[n], ids[(n + 1) % ids.len()]);
        async move {
            let settlements =
                json!([{"event_id": other, "action": "complete"}, {"event_id": own, "action": "complete"}]);
            let body = json!({"worker_id": "w:1", "settlements": settlements});
            team.post("/events/settle", &body).await.expect(200).json()
        }
    };
    for results in join_all(teams.iter().enumerate().map(settle)).await {
        assert_eq!(results["results"][0]["problem"]["code"], "event_not_found", "{results}");
        assert_eq!(results["results"][1]["accepted"], true, "{results}");
    }
    assert_eq!(app.count("SELECT count(*) FROM waybill.event_log WHERE action = 'COMPLETED'").await, 20);
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn events_with_large_payloads_of_many_namespaces_are_all_handed_out() {
    let app = App::start().await;
    let mut teams = Vec::new();
    for n in 0..20 {
        teams.push(app.namespace(&format!("team-{n}")).await);
    }
    // More than fits into one claim.
    let event = json!({"title": "a job", "tags": "a", "payload": "x".repeat(1_000_000)});
    for team in &teams {
        team.publish(event.clone()).await;
    }
    let claims = join_all(teams.iter().map(|team| team.claim("a", "w:1"))).await;
    assert!(claims.iter().all(Option::is_some));
}
