//! Removal against what revives, settles or locks an event at the same moment.

use std::sync::atomic::{AtomicBool, Ordering};

use diesel_async::SimpleAsyncConnection;
use serde_json::json;
use waybill::background::lease_reaper;
use waybill::background::retention::events::run_once;
use waybill::domain::retention::Retention;

use super::{publish_completed, publish_failed};
use crate::support::receiver::Receiver;
use crate::support::records::one_attempt;
use crate::support::retention::DAY;
use crate::support::{App, HeldTable, database, until};

#[tokio::test(flavor = "multi_thread")]
async fn a_locked_event_is_passed_over_without_waiting_and_removed_later() {
    let app = App::with_fixed_clock().await;
    let (held, free) = (publish_completed(&app, "a").await, publish_completed(&app, "a").await);
    app.advance(31 * DAY);
    let mut conn = database::connection(&app.url).await;
    let lock = format!("BEGIN; SELECT FROM waybill.deliveries WHERE id = {held} FOR UPDATE");
    conn.batch_execute(&lock).await.expect("a lock");
    assert_eq!(app.remove_old().await["events"], 1);
    assert!(app.has_event(held).await && !app.has_event(free).await);
    conn.batch_execute("ROLLBACK").await.expect("its end");
    assert_eq!(app.remove_old().await["events"], 1);
    assert_eq!(app.orphans().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_with_a_locked_push_is_passed_over_as_a_whole() {
    let (app, receiver) = (App::with_fixed_clock().await, Receiver::start().await);
    for path in ["/one", "/two", "/three"] {
        app.subscribe(&receiver.url(path), json!({})).await;
    }
    let id = app.publish_typed("order.paid", json!(1)).await;
    let pushes: Vec<i64> = app.deliveries_of(id).await.iter().map(|push| push["id"].as_i64().unwrap()).collect();
    for push in &pushes {
        app.until_delivery(*push, "COMPLETED").await;
    }
    app.advance(31 * DAY);
    let mut conn = database::connection(&app.url).await;
    let lock = format!("BEGIN; SELECT FROM waybill.deliveries WHERE id = {} FOR UPDATE", pushes[1]);
    conn.batch_execute(&lock).await.expect("a lock");
    assert_eq!(app.remove_old().await["deliveries"], 0);
    assert_eq!(app.deliveries_of(id).await.len(), 3);
    conn.batch_execute("ROLLBACK").await.expect("its end");
    assert_eq!(app.remove_old().await["deliveries"], 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_is_being_retried_stays() {
    let app = App::with_fixed_clock().await;
    let id = publish_failed(&app).await;
    app.advance(31 * DAY);
    let mut held = HeldTable::lock(&app.url, "waybill.event_log").await;
    let path = format!("/events/{id}/retry");
    let (retried, removed) = tokio::join!(app.post_empty(&path), async {
        held.until_blocked().await;
        let removed = app.remove_old().await["events"];
        held.unlock().await;
        removed
    });
    retried.expect(200);
    assert_eq!(removed, 0);
    assert_eq!(app.remove_old().await["events"], 0);
    assert_eq!(app.event(id).await["status"], "PENDING");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_whose_dead_letter_is_being_replayed_stays() {
    let (app, receiver) = (App::with_fixed_clock().await, Receiver::start().await);
    app.subscribe(&receiver.url("/hook"), one_attempt()).await;
    let id = app.publish_and_fail(&receiver, "order.paid", json!(1)).await;
    let letter = app.open_dead_letter(id).await["id"].clone();
    let push = app.only_delivery(id).await;
    app.advance(29 * DAY);
    let mut held = HeldTable::lock(&app.url, "waybill.event_log").await;
    let (replayed, removed) = tokio::join!(app.replay(&letter, json!({})), async {
        held.until_blocked().await;
        app.advance(2 * DAY);
        let removed = run_once(app.engine(), Retention::days(30)).await.expect("a round")["events"];
        held.unlock().await;
        removed
    });
    replayed.expect(200);
    assert_eq!(removed, 0);
    app.until_delivery(push, "COMPLETED").await;
    assert_eq!(app.event(id).await["status"], "COMPLETED");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_letter_that_is_being_replayed_in_bulk_stays() {
    let (app, receiver) = (App::with_fixed_clock().await, Receiver::start().await);
    app.subscribe(&receiver.url("/hook"), one_attempt()).await;
    let id = app.publish_and_fail(&receiver, "order.paid", json!(1)).await;
    let letter = app.open_dead_letter(id).await["id"].clone();
    app.advance(31 * DAY);
    app.start_operation("/dead-letters/replay", &json!({"filter": {}, "config": "original"})).await;
    let mut held = HeldTable::lock(&app.url, "waybill.event_log").await;
    let (replayed, removed) = tokio::join!(app.run_steps(), async {
        held.until_blocked().await;
        let removed = app.remove_old().await["dead_letters"];
        held.unlock().await;
        removed
    });
    assert_eq!((replayed, removed), (1, 0));
    app.until_delivery(app.only_delivery(id).await, "COMPLETED").await;
    assert!(app.get(&format!("/dead-letters/{letter}")).await.expect(200).json()["replay"].is_object());
}

/// Stops a step of the removal at the first event, until `change` is made to the second one. The step has already
/// decided what to read, but has not locked the second event. Larger steps are cancelled, as if they had taken too long:
/// only the smallest one may take long. Returns the number of removed events.
async fn removed_despite(app: &App, first: i64, change: impl AsyncFnOnce()) -> usize {
    let hold = format!(
        "CREATE FUNCTION waybill.hold() RETURNS trigger LANGUAGE plpgsql AS $$
         BEGIN
             IF current_setting('statement_timeout') = '50ms' THEN RAISE query_canceled; END IF;
             PERFORM pg_advisory_xact_lock(4711);
             RETURN OLD;
         END $$;
         CREATE TRIGGER hold BEFORE DELETE ON waybill.events FOR EACH ROW
             WHEN (OLD.id = {first}) EXECUTE FUNCTION waybill.hold();
         SELECT pg_advisory_lock(4711)"
    );
    let mut holder = database::connection(&app.url).await;
    holder.batch_execute(&hold).await.expect("a trigger");
    let blocked = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND objid = 4711 \
                   AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    let (removed, ()) = tokio::join!(run_once(app.engine(), Retention::days(30)), async {
        until("a step is held up", async || app.count(blocked).await == 1).await;
        change().await;
        holder.batch_execute("SELECT pg_advisory_unlock(4711)").await.expect("the end");
    });
    removed.expect("a round")["events"]
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_is_retried_while_a_step_runs_stays() {
    let app = App::with_fixed_clock().await;
    let (first, second) = (publish_failed(&app).await, publish_failed(&app).await);
    app.advance(31 * DAY);
    let retry = async || drop(app.post_empty(&format!("/events/{second}/retry")).await.expect(200));
    assert_eq!(removed_despite(&app, first, retry).await, 1);
    assert_eq!(app.event(second).await["status"], "PENDING");
    assert!(app.claim("f", "w:1").await.is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_whose_push_is_retried_while_a_step_runs_stays() {
    let (app, receiver) = (App::with_fixed_clock().await, Receiver::start().await);
    app.subscribe(&receiver.url("/hook"), one_attempt()).await;
    let first = app.publish_and_fail(&receiver, "order.paid", json!(1)).await;
    let second = app.publish_and_fail(&receiver, "order.paid", json!(2)).await;
    let push = app.only_delivery(second).await;
    app.advance(31 * DAY);
    let retry = async || drop(app.operate_on_delivery(push, "retry").await.expect(200));
    assert_eq!(removed_despite(&app, first, retry).await, 1);
    app.until_delivery(push, "COMPLETED").await;
    assert_eq!(app.orphans().await, 0);
}

/// The changed row could still be removed, but this step does not see its new version.
#[tokio::test(flavor = "multi_thread")]
async fn an_event_of_which_any_row_changes_while_a_step_runs_is_left_whole() {
    let (app, receiver) = (App::with_fixed_clock().await, Receiver::start().await);
    app.subscribe(&receiver.url("/hook"), one_attempt()).await;
    for changes_push in [true, false] {
        let first = app.publish_and_fail(&receiver, "order.paid", json!(1)).await;
        let second = app.publish_and_fail(&receiver, "order.paid", json!(2)).await;
        let row = if changes_push { app.only_delivery(second).await } else { second };
        app.advance(31 * DAY);
        let change = format!("UPDATE waybill.deliveries SET last_error = 'other' WHERE id = {row}");
        let removed = removed_despite(&app, first, async || database::execute(&app.url, &change).await).await;
        // A later step of the same round removes it.
        assert_eq!(removed, 2);
        assert_eq!(app.count("SELECT count(*) FROM waybill.deliveries").await, 0);
        database::execute(&app.url, "DROP FUNCTION waybill.hold() CASCADE").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_is_either_retried_or_removed_but_never_both() {
    let app = App::with_fixed_clock().await;
    let mut ids = Vec::new();
    for _ in 0..60 {
        ids.push(publish_failed(&app).await);
    }
    app.advance(31 * DAY);
    let is_over = AtomicBool::new(false);
    let retrying = async {
        let mut retried = Vec::new();
        // From the end, so that both meet in the middle.
        for id in ids.iter().rev() {
            let reply = app.post_empty(&format!("/events/{id}/retry")).await;
            match reply.status {
                200 => retried.push(*id),
                _ => drop(reply.problem(404, "event_not_found")),
            }
        }
        is_over.store(true, Ordering::Relaxed);
        retried
    };
    let removing = async {
        let mut removed = 0;
        while !is_over.load(Ordering::Relaxed) {
            removed += app.remove_old().await["events"];
        }
        removed + app.remove_old().await["events"]
    };
    let (retried, removed) = tokio::join!(retrying, removing);
    println!("{} retried, {removed} removed", retried.len());
    assert_eq!(retried.len() + removed, ids.len());
    for id in &ids {
        assert_eq!(app.has_event(*id).await, retried.contains(id));
    }
    let pending = app.count("SELECT count(*) FROM waybill.ready").await;
    assert_eq!(pending as usize, retried.len(), "what was retried can be claimed");
    assert_eq!(app.orphans().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_late_settlement_of_a_removed_event_is_not_found() {
    let app = App::with_fixed_clock().await;
    let id = app.publish_tagged("a").await;
    app.claim("a", "slow:1").await.expect("an event");
    app.advance(DAY);
    lease_reaper::run_once(app.engine()).await.expect("a sweep");
    app.claim("a", "fast:1").await.expect("it came back");
    app.complete(id, "fast:1").await.expect(200);
    app.advance(31 * DAY);
    assert_eq!(app.remove_old().await["events"], 1);
    for worker in ["slow:1", "fast:1"] {
        app.complete(id, worker).await.problem(404, "event_not_found");
        app.fail(id, worker).await.problem(404, "event_not_found");
    }
    let settle = json!({"worker_id": "slow:1", "settlements": [{"event_id": id, "action": "complete"}]});
    let results = app.post("/events/settle", &settle).await.expect(200).json();
    assert_eq!(results["results"][0]["problem"]["code"], "event_not_found", "{results}");
    assert_eq!(app.count("SELECT count(*) FROM waybill.deliveries").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_late_settlement_of_an_event_that_waited_for_long_is_accepted_and_begins_its_retention() {
    let app = App::with_fixed_clock().await;
    let id = app.publish_tagged("a").await;
    app.claim("a", "slow:1").await.expect("an event");
    app.advance(DAY);
    lease_reaper::run_once(app.engine()).await.expect("a sweep");
    app.advance(100 * DAY);
    assert_eq!(app.remove_old().await["events"], 0);
    app.complete(id, "slow:1").await.expect(200);
    app.advance(30 * DAY);
    assert_eq!(app.remove_old().await["events"], 0);
    app.advance(DAY);
    assert_eq!(app.remove_old().await["events"], 1);
}
