//! `POST /events/{id}/start`.

use crate::support::work::{Claim, Naming, W1, W2, repeated};
use crate::support::{App, ledger};

#[tokio::test(flavor = "multi_thread")]
async fn a_start_is_logged_once_per_claim() {
    let app = App::with_fixed_clock().await;
    app.publish_tagged("a").await;
    let first = app.take("a", W1).await;
    let entry = app.say(&first, "start", Naming::Lease).await.expect(200).json();
    assert_eq!((&entry["action"], &entry["worker_id"]), (&"STARTED".into(), &W1.into()));
    app.advance(1);
    for naming in [Naming::Lease, Naming::Worker] {
        assert_eq!(app.say(&first, "start", naming).await.expect(200).json(), repeated(&entry));
    }
    app.operate(first.event_id, "reset").await.expect(200);
    let second = app.take("a", W1).await;
    app.say(&second, "start", Naming::Worker).await.expect(200);
    assert_eq!(app.actions(first.event_id).await, ["PICKED", "STARTED", "RESET", "PICKED", "STARTED"]);
    ledger::check(&app).await;
}

/// `start`, `heartbeat` and `release` are all refused without a live claim.
#[tokio::test(flavor = "multi_thread")]
async fn what_needs_a_live_claim_is_refused_without_one() {
    let app = App::with_fixed_clock().await;
    for word in ["start", "heartbeat", "release"] {
        for naming in [Naming::Lease, Naming::Worker] {
            let event_id = app.publish_tagged("a").await;
            let invented = Claim { event_id, lease_id: 1, worker_id: W1.into() };
            app.say(&invented, word, naming).await.problem(409, "not_claimed");
            let first = app.take("a", W1).await;
            app.say(&first.spoken_by(W2), word, Naming::Worker).await.problem(409, "lease_lost");
            app.operate(event_id, "reset").await.expect(200);
            app.say(&first, word, naming).await.problem(409, "lease_lost");
            let second = app.take("a", W2).await;
            app.say(&first, word, naming).await.problem(409, "lease_lost");
            app.say(&second, "complete", naming).await.expect(200);
            app.say(&first, word, naming).await.problem(409, "already_finished");
            app.say(&second, word, naming).await.problem(409, "already_settled");
            assert_eq!(app.actions(event_id).await, ["PICKED", "RESET", "PICKED", "COMPLETED"]);
            let unknown = Claim { event_id: 4_711, ..first };
            app.say(&unknown, word, naming).await.problem(404, "event_not_found");
        }
    }
    ledger::check(&app).await;
}
