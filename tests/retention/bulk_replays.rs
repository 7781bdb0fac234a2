//! The removal of dead letters while an operation replays them.

use diesel_async::SimpleAsyncConnection;
use serde_json::json;
use waybill::background::retention::events::run_once;
use waybill::domain::retention::Retention;

use crate::support::receiver::Receiver;
use crate::support::records::one_attempt;
use crate::support::retention::DAY;
use crate::support::{App, database, until};

/// Stops the statement that makes an event again. It has read the dead letters then.
const HOLD: &str = "
    CREATE FUNCTION waybill.hold() RETURNS trigger LANGUAGE plpgsql AS
        'BEGIN PERFORM pg_advisory_xact_lock(4711); RETURN NEW; END';
    CREATE TRIGGER hold BEFORE INSERT ON waybill.events FOR EACH ROW EXECUTE FUNCTION waybill.hold();
    SELECT pg_advisory_lock(4711)";

const HELD: &str = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND objid = 4711 \
                    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_letter_whose_event_is_being_restored_stays() {
    let (app, receiver) = (App::with_fixed_clock().await, Receiver::start().await);
    app.subscribe(&receiver.url("/hook"), one_attempt()).await;
    let id = app.publish_and_fail(&receiver, "order.paid", json!(1)).await;
    let letter = app.open_dead_letter(id).await;
    app.advance(31 * DAY);
    assert_eq!(run_once(app.engine(), Retention::days(1)).await.expect("a round")["events"], 1);
    app.start_operation("/dead-letters/replay", &json!({"filter": {}, "config": "original"})).await;
    let mut holder = database::connection(&app.url).await;
    holder.batch_execute(HOLD).await.expect("a trigger");
    let (replayed, removed) = tokio::join!(app.run_steps(), async {
        until("the replay is held up", async || app.count(HELD).await == 1).await;
        let removed = app.remove_old().await["dead_letters"];
        holder.batch_execute("SELECT pg_advisory_unlock(4711)").await.expect("the end");
        removed
    });
    assert_eq!((replayed, removed), (1, 0));
    app.until_delivery(letter["delivery_id"].as_i64().expect("an id"), "COMPLETED").await;
    assert!(app.get(&format!("/dead-letters/{}", letter["id"])).await.expect(200).json()["replay"].is_object());
}
