//! Leases became wider and unique: claims made before the migration can still be settled, and the
//! migration can be reverted whatever leases were handed out.

use serde_json::json;
use waybill::store::connection::migrate::revert_all;

use crate::support::work::{Claim, Naming, W1};
use crate::support::{App, Options, database, ledger};

const BACK: [&str; 2] = [
    include_str!("../../migrations/2026-11-16-000015_cancel_reason/down.sql"),
    include_str!("../../migrations/2026-11-16-000014_unique_leases/down.sql"),
];
const FORTH: [&str; 2] = [
    include_str!("../../migrations/2026-11-16-000014_unique_leases/up.sql"),
    include_str!("../../migrations/2026-11-16-000015_cancel_reason/up.sql"),
];

/// Claims two events, one of them with an `idempotency_key`.
async fn two_claims(app: &App) -> [Claim; 2] {
    app.publish_tagged("a").await;
    app.publish_tagged("a").await;
    let again = json!({"worker_id": W1, "tags": ["a"], "idempotency_key": "r1"});
    let claimed = app.post("/events/claim", &again).await.expect(200).json();
    [Claim::of(&claimed["events"][0]), app.claim_one("a", W1).await]
}

async fn restarted(url: &str) -> App {
    App::start_with(Options { url: Some(url.to_owned()), ..Options::default() }).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_made_before_the_migration_can_be_settled_after_it() {
    let app = App::start().await;
    let [first, second] = two_claims(&app).await;
    let url = app.url.clone();
    app.stop().await;
    for sql in BACK {
        database::execute(&url, sql).await;
    }
    // With the lease numbers of that time.
    database::execute(&url, "UPDATE waybill.deliveries SET lease_id = 1; UPDATE waybill.event_log SET lease_id = 1")
        .await;
    for sql in FORTH {
        database::execute(&url, sql).await;
    }
    let app = restarted(&url).await;
    app.settle(&Claim { lease_id: 1, ..first }, "complete", Naming::Lease).await.expect(200);
    app.settle(&Claim { lease_id: 1, ..second.clone() }, "release", Naming::Lease).await.expect(200);
    let third = app.claim_one("a", W1).await;
    assert!(third.lease_id > second.lease_id);
    app.settle(&third, "complete", Naming::Lease).await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn large_lease_ids_do_not_prevent_reverting_the_migration() {
    let app = App::start().await;
    database::execute(&app.url, "SELECT setval('waybill.ready_seq', 9000000000)").await;
    let [first, second] = two_claims(&app).await;
    assert_eq!((first.lease_id, second.lease_id), (9_000_000_001, 9_000_000_002));
    app.settle(&first, "complete", Naming::Lease).await.expect(200);
    app.settle(&second, "release", Naming::Lease).await.expect(200);
    ledger::check(&app).await;
    let url = app.url.clone();
    app.stop().await;
    for sql in BACK {
        database::execute(&url, sql).await;
    }
    let kept = "SELECT count(*) FROM waybill.deliveries WHERE lease_id = settled_lease_id AND lease_id > 2000000000";
    assert_eq!(database::count(&url, kept).await, 2);
    for sql in FORTH {
        database::execute(&url, sql).await;
    }
    revert_all(&url).await.expect("down");
}
