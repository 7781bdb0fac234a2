//! Operators of one namespace do not reach the other: resets, retries, cancellations and replays by filter.

use serde_json::json;

use super::two_namespaces;
use crate::support::{App, ledger};

/// Publishes three events with the same words in each state.
async fn fill(team: &App) -> [i64; 3] {
    let held = team.publish(json!({"title": "t", "tags": "held", "correlation_id": "c"})).await;
    team.claim("held", "w:1").await.expect("an event");
    let failed = team.publish(json!({"title": "t", "tags": "failed", "correlation_id": "c"})).await;
    team.claim("failed", "w:1").await.expect("an event");
    let body = json!({"worker_id": "w:1", "retryable": false});
    team.post(&format!("/events/{failed}/fail"), &body).await.expect(400);
    let waiting = team.publish(json!({"title": "t", "tags": "waiting", "correlation_id": "c"})).await;
    [held, failed, waiting]
}

async fn states(team: &App, ids: [i64; 3]) -> Vec<String> {
    let mut states = Vec::new();
    for id in ids {
        states.push(team.event(id).await["status"].as_str().expect("a status").to_owned());
    }
    states
}

#[tokio::test(flavor = "multi_thread")]
async fn operations_by_filter_change_only_rows_of_their_namespace() {
    let app = App::start_with(crate::support::Options { fixed_clock: true, ..Default::default() }).await;
    let (north, south) = two_namespaces(&app).await;
    let (one, two) = (fill(&north).await, fill(&south).await);
    let begin = ["PROCESSING", "FAILED", "PENDING"];
    assert_eq!(
        (states(&north, one).await, states(&south, two).await),
        (begin.map(str::to_owned).into(), begin.map(str::to_owned).into())
    );
    for (path, filter) in [
        ("/events/reset", json!({"stale_for_seconds": 0})),
        ("/events/retry", json!({"correlation_id": "c"})),
        ("/events/cancel", json!({"correlation_id": "c", "status": "PENDING"})),
    ] {
        let operation = north.start_operation(path, &json!({"filter": filter, "per_second": 10_000})).await;
        app.advance(1);
        while app.run_steps().await > 0 {}
        let ended = north.operation(&operation).await;
        assert_eq!(
            (&ended["status"], ended["matched"].as_i64()),
            (&json!("COMPLETED"), ended["done"].as_i64()),
            "{ended}"
        );
        assert!(ended["done"].as_i64() >= Some(1), "{path}: {ended}");
    }
    assert_eq!(states(&north, one).await, ["CANCELLED"; 3]);
    assert_eq!(states(&south, two).await, begin);
    ledger::check(&app).await;
}
