//! Every lease stays in the lease watch, even if it is changed while the lease reaper checks it.

use serde_json::json;

use crate::support::locks::HeldRow;
use crate::support::work::W1;
use crate::support::{App, database, ledger};

/// Blocks statements that delete from the lease watch, in the middle, on a lock that the test
/// holds.
const HOLD_UP: &str = "
    CREATE FUNCTION hold_up() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        PERFORM pg_advisory_xact_lock(1); RETURN OLD; END $$;
    CREATE TRIGGER hold_up BEFORE DELETE ON waybill.lease_watch FOR EACH ROW EXECUTE FUNCTION hold_up()";

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_extended_after_the_reaper_saw_it_expired_stays_in_the_lease_watch() {
    let app = App::with_fixed_clock().await;
    database::execute(&app.url, HOLD_UP).await;
    let id = app.publish_tagged("a").await;
    let claim = app.claim_one("a", W1).await;
    app.advance(300);
    let holder = HeldRow::with_uncommitted(&app, "SELECT pg_advisory_xact_lock(1)").await;
    let extend = async {
        app.until_blocked_calls(1).await;
        app.settle_with(&claim, "heartbeat", json!({"lease_seconds": 60})).await.expect(200);
        holder.unlock().await;
    };
    let (rescued, ()) = tokio::join!(app.reap(), extend);
    assert_eq!(rescued, 0);
    ledger::check(&app).await;
    let workers = app.get("/workers").await.expect(200).json();
    assert_eq!(workers["workers"][0]["holding"], 1, "{workers}");
    for _ in 0..59 {
        app.advance(1);
        assert_eq!(app.reap().await, 0);
    }
    app.advance(1);
    assert_eq!(app.reap().await, 1);
    assert_eq!(app.claim_one("a", W1).await.event_id, id);
    ledger::check(&app).await;
}
