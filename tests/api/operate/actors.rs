//! Who caused a line of the event log.

use chrono::TimeDelta;
use serde_json::{Value, json};
use waybill::background::subscription_drainer;
use waybill::domain::ids::{DeliveryId, EventId, NamespaceId};
use waybill::domain::operation::OperationKind;
use waybill::domain::scope::Scope;
use waybill::engine::operate::operations::NewOperation;
use waybill::engine::operate::operations::filter::{OperationFilter, RowFilter};
use waybill::engine::operate::replays::ReplayOrder;
use waybill::store::lists::dead_letters::DeadLetterFilter;
use waybill::store::lists::events::EventFilter;

use crate::support::receiver::Receiver;
use crate::support::records::{app_that_sends_nothing, one_attempt};
use crate::support::work::{Naming, W1, W2};
use crate::support::{App, Options, ledger, until};

/// Returns the scope of a caller whose key has this name.
fn caller(app: &App, name: &str) -> Scope {
    Scope { actor: Some(name.into()), ..app.engine().scope_of(NamespaceId::DEFAULT) }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or("-").to_owned()
}

/// Returns the actions in an event's log with their actors, oldest first.
async fn lines(app: &App, event_id: i64) -> Vec<String> {
    let event = app.event(event_id).await;
    let logs = event["logs"].as_array().expect("logs");
    logs.iter().map(|line| format!("{} {}", text(&line["action"]), text(&line["actor"]))).collect()
}

async fn last_line(app: &App, event_id: i64) -> Value {
    app.event(event_id).await["logs"].as_array().expect("logs").last().expect("a line").clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operators_reset_cancel_and_retry_name_the_operator() {
    let app = App::with_fixed_clock().await;
    let id = app.publish_tagged("a").await;
    app.claim_one("a", W1).await;
    let (engine, ann, event) = (app.engine(), caller(&app, "ann"), EventId(id));
    engine.reset_event(ann.clone(), event, "stuck".into()).await.expect("a reset");
    engine.cancel_event(ann.clone(), event, None).await.expect("a cancel");
    engine.retry_event(ann, event, None).await.expect("a retry");
    assert_eq!(lines(&app, id).await, ["PICKED -", "RESET ann", "CANCELLED ann", "RETRIED ann"]);
    let logs = app.get(&format!("/logs?event_id={id}&action=RESET")).await.expect(200).json();
    assert_eq!(logs["logs"][0]["actor"], "ann");
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_lines_of_the_lease_holder_and_of_callers_without_a_key_name_nobody() {
    let app = App::with_fixed_clock().await;
    let id = app.publish_tagged("a").await;
    for verb in ["release", "fail"] {
        let claim = app.claim_one("a", W1).await;
        app.settle(&claim, "start", Naming::Lease).await.expect(200);
        app.settle(&claim, verb, Naming::Lease).await.expect(200);
        app.advance_and_promote(300).await;
    }
    app.claim_one("a", W1).await;
    app.operate(id, "reset").await.expect(200);
    app.claim_one("a", W2).await;
    app.complete(id, W2).await.expect(200);
    let expected = "PICKED, STARTED, RELEASED, PICKED, STARTED, FAILED, PICKED, RESET, PICKED, COMPLETED";
    assert_eq!(app.actions(id).await.join(", "), expected);
    assert!(lines(&app, id).await.iter().all(|line| line.ends_with(" -")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_of_running_work_keeps_its_reason_and_who_asked_until_the_claim_ends() {
    let app = App::with_fixed_clock().await;
    let mut ended = Vec::new();
    for way in ["fail", "release", "reset", "lease_end"] {
        let id = app.publish_tagged("a").await;
        let claim = app.claim_one("a", W1).await;
        let (engine, event) = (app.engine(), EventId(id));
        engine.cancel_event(caller(&app, "ann"), event, Some("obsolete".into())).await.expect("a cancel");
        // A second request without a reason changes nothing.
        engine.cancel_event(caller(&app, "cleo"), event, None).await.expect("a cancel");
        match way {
            "reset" => drop(engine.reset_event(caller(&app, "bob"), event, "stuck".into()).await.expect("a reset")),
            "lease_end" => {
                app.advance(300);
                assert_eq!(app.reap().await, 1);
            }
            verb => drop(app.settle(&claim, verb, Naming::Lease).await.expect(200)),
        }
        assert_eq!(last_line(&app, id).await["reason"], "obsolete", "{way}");
        ended.push(lines(&app, id).await[1..].join(", "));
    }
    let expected = [
        "FAILED -, CANCELLED ann",
        "RELEASED -, CANCELLED ann",
        "RESET bob, CANCELLED ann",
        "RESET server:lease_reaper, CANCELLED ann",
    ];
    assert_eq!(ended, expected);
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_later_cancel_with_a_reason_replaces_both_and_a_retry_forgets_both() {
    let app = App::with_fixed_clock().await;
    let id = app.publish_tagged("a").await;
    let claim = app.claim_one("a", W1).await;
    let (engine, event) = (app.engine(), EventId(id));
    for (name, reason) in [("ann", "obsolete"), ("bob", "a duplicate")] {
        engine.cancel_event(caller(&app, name), event, Some(reason.into())).await.expect("a cancel");
    }
    app.settle(&claim, "release", Naming::Lease).await.expect(200);
    let line = last_line(&app, id).await;
    assert_eq!((&line["actor"], &line["reason"]), (&json!("bob"), &json!("a duplicate")));
    app.operate(id, "retry").await.expect(200);
    app.operate(id, "cancel").await.expect(200);
    let line = last_line(&app, id).await;
    assert_eq!((&line["action"], &line["actor"], &line["reason"]), (&json!("CANCELLED"), &json!(null), &json!(null)));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_sweeps_do_names_their_service() {
    let app = App::with_fixed_clock().await;
    let poison = app.publish_tagged("a").await;
    for _ in 0..5 {
        app.claim_one("a", W1).await;
        app.advance(300);
        assert_eq!(app.reap().await, 1);
    }
    let logged = lines(&app, poison).await;
    assert_eq!(logged.iter().filter(|line| *line == "RESET server:lease_reaper").count(), 5, "{logged:?}");
    assert_eq!(logged.last().map(String::as_str), Some("FAILED server:lease_reaper"));
    let late =
        app.publish(json!({"title": "a job", "tags": "b", "expires_at": app.now() + TimeDelta::seconds(60)})).await;
    app.advance(61);
    assert_eq!(app.expire().await, 1);
    assert_eq!(lines(&app, late).await, ["EXPIRED server:expirer"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_letter_names_the_operator_who_made_it_and_the_one_who_replayed_it() {
    let app = app_that_sends_nothing().await;
    app.subscribe("http://127.0.0.1:9/hook", json!({"event_types": ["order"]})).await;
    let id = app.publish_typed("order", json!(1)).await;
    let delivery = DeliveryId(app.only_delivery(id).await);
    let engine = app.engine();
    engine.dead_letter_delivery(caller(&app, "ann"), delivery, "wrong".into()).await.expect("a dead letter");
    let letter = app.open_dead_letter(id).await;
    assert_eq!(letter["actor"], "ann");
    let order = ReplayOrder { reason: None, config: Default::default(), payload: None, new_webhook_id: false };
    let letter = letter["id"].as_i64().expect("an id");
    engine.replay_dead_letter(caller(&app, "bob"), letter, order).await.expect("a replay");
    assert_eq!(app.dead_letters(&format!("event_id={id}")).await[0]["replay"]["actor"], "bob");
    engine.cancel_delivery(caller(&app, "ann"), delivery, None).await.expect("a cancel");
    engine.retry_delivery(caller(&app, "cleo"), delivery, None).await.expect("a retry");
    let expected = ["DEAD_LETTERED ann", "REPLAYED bob", "CANCELLED ann", "RETRIED cleo"];
    assert_eq!(lines(&app, id).await, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_letter_that_the_server_made_names_the_service() {
    let (app, receiver) = (App::start().await, Receiver::start().await);
    app.subscribe(&receiver.url("/hook"), one_attempt()).await;
    let id = app.publish_and_fail(&receiver, "order.paid", json!(1)).await;
    let logged = lines(&app, id).await;
    assert_eq!(logged, ["PICKED -", "FAILED -", "DEAD_LETTERED server:dispatcher"]);
    assert_eq!(app.open_dead_letter(id).await["actor"], json!(null), "nobody made it by hand");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_that_expires_is_a_dead_letter_of_the_expirer() {
    let flags = vec!["--dispatch=false".to_owned()];
    let app = App::start_with(Options { fixed_clock: true, flags, ..Options::default() }).await;
    app.subscribe("http://127.0.0.1:9/hook", json!({"event_types": ["order"]})).await;
    let event = json!({"title": "a job", "event_type": "order", "expires_at": app.now() + TimeDelta::seconds(60)});
    let id = app.publish(event).await;
    app.advance(61);
    assert_eq!(app.expire().await, 1);
    assert_eq!(lines(&app, id).await, ["EXPIRED server:expirer", "DEAD_LETTERED server:expirer"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_pushes_of_a_deleted_subscription_are_cancelled_by_the_drainer() {
    let app = app_that_sends_nothing().await;
    let subscription = app.subscribe("http://127.0.0.1:9/hook", json!({"event_types": ["order"]})).await;
    let id = app.publish_typed("order", json!(1)).await;
    app.delete(&format!("/subscriptions/{}", subscription["id"])).await.expect(204);
    subscription_drainer::run_once(app.engine()).await.expect("a round");
    until("the push is cancelled", async || app.event(id).await["logs"] != json!([])).await;
    let line = last_line(&app, id).await;
    assert_eq!(
        (&line["actor"], &line["reason"]),
        (&json!("server:subscription_drainer"), &json!("subscription_deleted"))
    );
}

/// Starts an operation on behalf of a caller and runs it to its end.
async fn operate_on_all(app: &App, name: &str, kind: OperationKind, filter: OperationFilter) -> Value {
    let config = matches!(kind, OperationKind::ReplayDeadLetters).then(Default::default);
    let new = NewOperation { kind, filter, config, reason: Some("tidying".into()), per_second: 500.0 };
    let row = app.engine().start_operation(caller(app, name), new).await.expect("an operation");
    app.until_complete(&json!({"id": row.id})).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_lines_of_an_operation_name_who_started_it() {
    let app = App::with_fixed_clock().await;
    let id = app.publish_tagged("a").await;
    let events = || OperationFilter { ids: Vec::new(), rows: RowFilter::Events(EventFilter::default()) };
    let cancelled = operate_on_all(&app, "ann", OperationKind::CancelEvents, events()).await;
    assert_eq!((&cancelled["actor"], &cancelled["done"]), (&json!("ann"), &json!(1)));
    operate_on_all(&app, "bob", OperationKind::RetryEvents, events()).await;
    assert_eq!(lines(&app, id).await, ["CANCELLED ann", "RETRIED bob"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operation_on_dead_letters_names_who_started_it() {
    let app = app_that_sends_nothing().await;
    app.subscribe("http://127.0.0.1:9/hook", json!({"event_types": ["order"]})).await;
    let id = app.publish_typed("order", json!(1)).await;
    app.dead_letter(app.only_delivery(id).await, "wrong").await.expect(200);
    let filter = OperationFilter { ids: Vec::new(), rows: RowFilter::DeadLetters(DeadLetterFilter::default()) };
    operate_on_all(&app, "ann", OperationKind::ReplayDeadLetters, filter).await;
    assert_eq!(lines(&app, id).await, ["DEAD_LETTERED -", "REPLAYED ann"]);
    assert_eq!(app.dead_letters(&format!("event_id={id}")).await[0]["replay"]["actor"], "ann");
}
