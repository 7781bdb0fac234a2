//! `POST /events/{id}/start`.

use crate::support::work::{Claim, Naming, W1, W2, repeated};
use crate::support::{App, ledger};

#[tokio::test(flavor = "multi_thread")]
async fn a_start_is_logged_once_per_claim() {
    let app = App::with_fixed_clock().await;
    app.publish_tagged("a").await;
    let first = app.claim_one("a", W1).await;
    let entry = app.settle(&first, "start", Naming::Lease).await.expect(200).json();
    assert_eq!((&entry["action"], &entry["worker_id"]), (&"STARTED".into(), &W1.into()));
    app.advance(1);
    for naming in [Naming::Lease, Naming::Worker] {
        assert_eq!(app.settle(&first, "start", naming).await.expect(200).json(), repeated(&entry));
    }
    app.operate(first.event_id, "reset").await.expect(200);
    let second = app.claim_one("a", W1).await;
    app.settle(&second, "start", Naming::Worker).await.expect(200);
    assert_eq!(app.actions(first.event_id).await, ["PICKED", "STARTED", "RESET", "PICKED", "STARTED"]);
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn start_heartbeat_and_release_are_refused_without_a_current_claim() {
    let app = App::with_fixed_clock().await;
    for verb in ["start", "heartbeat", "release"] {
        for naming in [Naming::Lease, Naming::Worker] {
            let event_id = app.publish_tagged("a").await;
            let invented = Claim { event_id, lease_id: 1, worker_id: W1.into() };
            app.settle(&invented, verb, naming).await.problem(409, "not_claimed");
            let first = app.claim_one("a", W1).await;
            app.settle(&first.as_worker(W2), verb, Naming::Worker).await.problem(409, "lease_lost");
            app.operate(event_id, "reset").await.expect(200);
            app.settle(&first, verb, naming).await.problem(409, "lease_lost");
            let second = app.claim_one("a", W2).await;
            app.settle(&first, verb, naming).await.problem(409, "lease_lost");
            app.settle(&second, "complete", naming).await.expect(200);
            app.settle(&first, verb, naming).await.problem(409, "already_finished");
            app.settle(&second, verb, naming).await.problem(409, "already_settled");
            assert_eq!(app.actions(event_id).await, ["PICKED", "RESET", "PICKED", "COMPLETED"]);
            let unknown = Claim { event_id: 4_711, ..first };
            app.settle(&unknown, verb, naming).await.problem(404, "event_not_found");
        }
    }
    ledger::check(&app).await;
}
