//! The circuit breaker: an endpoint that keeps failing gets no requests for a while, and then a
//! probe.

use std::collections::BTreeSet;

use futures_util::future::join_all;
use serde_json::{Value, json};
use waybill::background::dispatcher::Dispatcher;
use waybill::domain::ids::NamespaceId;
use waybill::engine::push::endpoint_notes::{EndpointNote, Finding};
use waybill::store::tables::endpoints::EndpointKey;

use super::by_hand::{dispatch, dispatch_and_finish, dispatcher, idle, second_idle_server};
use super::{attempt, claims, endpoint, fixed, id_of, publish, publish_id, with_flags};
use crate::support::locks::HeldRow;
use crate::support::receiver::{Gate, Receiver, Reply};
use crate::support::{App, ledger, until};

const THREE_FAILURES: &str = "--breaker-failures=3";

/// An idle server whose breakers open after three failures. Its one subscription has failed three
/// times, and two further events are parked behind the open breaker.
struct OpenBreaker {
    app: App,
    receiver: Receiver,
    dispatcher: Dispatcher,
    subscription: Value,
    parked: Vec<i64>,
}

impl OpenBreaker {
    async fn start() -> Self {
        Self::start_with(100).await
    }

    async fn start_with(max_pushes: usize) -> Self {
        let (app, receiver) = (idle(&[THREE_FAILURES]).await, Receiver::start().await);
        let mut dispatcher = dispatcher(&app, max_pushes);
        // No retries of the three failures: only the parked events are sent later.
        let subscription = app.subscribe(&receiver.url("/hook"), json!({"max_attempts": 1})).await;
        receiver.always(Reply::status(500));
        for _ in 0..3 {
            publish_id(&app, "a").await;
        }
        while receiver.count() < 3 {
            assert_eq!(dispatch_and_finish(&app, &mut dispatcher).await, 3.min(max_pushes));
        }
        let parked = vec![publish_id(&app, "a").await, publish_id(&app, "a").await];
        Self { app, receiver, dispatcher, subscription, parked }
    }

    async fn dispatch(&mut self) -> usize {
        dispatch_and_finish(&self.app, &mut self.dispatcher).await
    }

    async fn state(&self) -> Value {
        endpoint(&self.app, &self.subscription).await["breaker"].clone()
    }

    /// Returns the types of the events that the server itself published.
    async fn notices(&self) -> Vec<String> {
        notices(&self.app).await
    }
}

async fn notices(app: &App) -> Vec<String> {
    let found =
        super::rows(app, "SELECT event_type FROM waybill.events WHERE event_type LIKE 'waybill.%' ORDER BY id").await;
    found.iter().map(|row| row["event_type"].as_str().expect("a type").to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_breaker_opens_at_the_twentieth_failure_in_a_row() {
    let (app, receiver) = (fixed(&[]).await, Receiver::start().await);
    receiver.always(Reply::status(500));
    let subscription = app.subscribe(&receiver.url("/hook"), json!({})).await;
    for number in 1..=20 {
        let id = publish_id(&app, "a").await;
        attempt(&app, id, 1).await;
        let known = endpoint(&app, &subscription).await;
        assert_eq!(known["failures_in_row"], number);
        assert_eq!(known["breaker"], if number < 20 { "closed" } else { "open" }, "{known}");
    }
    assert_eq!(app.seconds_ahead(&endpoint(&app, &subscription).await["paused_until"]), 30);
    assert_eq!(notices(&app).await, ["waybill.subscription.breaker_opened"]);
    ledger::check(&app).await;
}

/// Six requests are in flight at once and are answered one after the other.
#[tokio::test(flavor = "multi_thread")]
async fn a_success_resets_the_count_of_failures() {
    let (app, receiver) = (fixed(&[THREE_FAILURES]).await, Receiver::start().await);
    let gates: Vec<Gate> = (0..6).map(|_| Gate::closed()).collect();
    receiver.answer_with({
        let gates = gates.clone();
        move |request| {
            let n = request.json().as_u64().expect("a number") as usize;
            Reply::status(if n % 3 == 2 { 200 } else { 500 }).held_by(&gates[n])
        }
    });
    let subscription = app.subscribe(&receiver.url("/hook"), json!({})).await;
    let mut ids = Vec::new();
    for n in 0..6 {
        ids.push(id_of(&publish(&app, "a", json!(n)).await));
    }
    receiver.until_in_flight(6).await;
    for (n, failures) in [1, 2, 0, 1, 2, 0].into_iter().enumerate() {
        gates[n].open();
        attempt(&app, ids[n], 1).await;
        assert_eq!(endpoint(&app, &subscription).await["failures_in_row"], failures, "after {n}");
    }
    assert_eq!(notices(&app).await.len(), 0);
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_in_flight_when_the_breaker_opened_does_not_keep_it_open_longer() {
    let (app, receiver) = (fixed(&[THREE_FAILURES]).await, Receiver::start().await);
    let (first, last) = (Gate::closed(), Gate::closed());
    for gate in [&first, &first, &first, &last] {
        receiver.next(Reply::status(500).held_by(gate));
    }
    let subscription = app.subscribe(&receiver.url("/hook"), json!({})).await;
    for _ in 0..4 {
        publish_id(&app, "a").await;
    }
    receiver.until_in_flight(4).await;
    first.open();
    until("it is open", async || endpoint(&app, &subscription).await["breaker"] == "open").await;
    app.advance(10);
    last.open();
    until("all have failed", async || endpoint(&app, &subscription).await["failures_in_row"] == 4).await;
    assert_eq!(app.seconds_ahead(&endpoint(&app, &subscription).await["paused_until"]), 20);
    let failed = "SELECT count(*) FROM waybill.event_log WHERE action = 'FAILED'";
    until("all is recorded", async || app.count(failed).await == 4).await;
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_4xx_response_does_not_count_as_a_failure_of_the_endpoint() {
    let (app, receiver) = (fixed(&[THREE_FAILURES]).await, Receiver::start().await);
    let subscription = app.subscribe(&receiver.url("/hook"), json!({})).await;
    for (status, failures) in [(500, 1), (500, 2), (404, 0), (500, 1)] {
        receiver.next(Reply::status(status));
        let id = publish_id(&app, "a").await;
        attempt(&app, id, 1).await;
        assert_eq!(endpoint(&app, &subscription).await["failures_in_row"], failures);
    }
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_open_breaker_sends_nothing_and_counts_no_attempts() {
    let mut opened = OpenBreaker::start().await;
    assert_eq!(opened.state().await, "open");
    assert_eq!(opened.dispatch().await, 0);
    opened.app.advance(29);
    assert_eq!(opened.dispatch().await, 0);
    for id in &opened.parked {
        assert_eq!((claims(&opened.app, *id).await, opened.app.status(*id).await.as_str()), (0, "PENDING"));
    }
    assert_eq!(opened.receiver.count(), 3);
    ledger::check(&opened.app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_the_pause_exactly_one_of_two_servers_sends_exactly_one_probe() {
    let mut opened = OpenBreaker::start().await;
    let other = second_idle_server(&opened.app, &[THREE_FAILURES]).await;
    let mut others = dispatcher(&other, 100);
    opened.app.advance(30);
    other.advance(30);
    assert_eq!(opened.state().await, "half_open");
    let gate = Gate::closed();
    opened.receiver.always(Reply::ok().held_by(&gate));
    let at_once = tokio::join!(dispatch(&opened.app, &mut opened.dispatcher), dispatch(&other, &mut others));
    assert_eq!(at_once.0 + at_once.1, 1);
    assert_eq!(dispatch(&opened.app, &mut opened.dispatcher).await + dispatch(&other, &mut others).await, 0);
    opened.receiver.until_in_flight(1).await;
    gate.open();
    opened.dispatcher.finish().await;
    others.finish().await;
    assert_eq!(opened.state().await, "closed");
    assert_eq!(dispatch_and_finish(&other, &mut others).await, 1, "the other parked event is sent");
    assert_eq!(opened.receiver.count(), 5);
    ledger::check(&opened.app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_subscriptions_of_one_endpoint_share_one_probe() {
    let mut opened = OpenBreaker::start().await;
    opened.app.subscribe(&opened.receiver.url("/hook"), json!({})).await;
    publish_id(&opened.app, "a").await;
    opened.app.advance(30);
    assert_eq!(opened.dispatch().await, 1);
    assert_eq!(opened.dispatch().await, 0);
    ledger::check(&opened.app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_probe_keeps_the_breaker_open_and_a_successful_one_closes_it() {
    let mut opened = OpenBreaker::start().await;
    opened.app.advance(30);
    assert_eq!(opened.dispatch().await, 1);
    assert_eq!(opened.state().await, "open");
    assert_eq!(opened.notices().await, ["waybill.subscription.breaker_opened"], "it stayed open");
    opened.app.advance(29);
    assert_eq!(opened.dispatch().await, 0);
    opened.app.advance(1);
    opened.receiver.always(Reply::ok());
    assert_eq!(opened.dispatch().await, 1);
    assert_eq!(opened.state().await, "closed");
    for _ in 0..5 {
        publish_id(&opened.app, "b").await;
    }
    assert_eq!(opened.dispatch().await, 5, "everything is sent");
    let expected = ["waybill.subscription.breaker_opened", "waybill.subscription.breaker_closed"];
    assert_eq!(opened.notices().await, expected);
    ledger::check(&opened.app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_retry_after_of_a_probe_is_respected() {
    let mut opened = OpenBreaker::start().await;
    opened.app.advance(30);
    opened.receiver.next(Reply::too_many_requests("600"));
    assert_eq!(opened.dispatch().await, 1);
    assert_eq!(opened.app.seconds_ahead(&endpoint(&opened.app, &opened.subscription).await["paused_until"]), 600);
    opened.app.advance(599);
    assert_eq!(opened.dispatch().await, 0);
    opened.app.advance(1);
    assert_eq!(opened.dispatch().await, 1);
    ledger::check(&opened.app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_a_free_slot_leaves_the_probe_to_another_server() {
    let mut opened = OpenBreaker::start_with(1).await;
    let (busy, gate) = (Receiver::start().await, Gate::closed());
    busy.always(Reply::ok().held_by(&gate));
    opened.app.subscribe(&busy.url("/"), json!({"event_types": ["busy"], "max_concurrency": 1})).await;
    publish_id(&opened.app, "busy").await;
    opened.app.advance(30);
    assert_eq!(dispatch(&opened.app, &mut opened.dispatcher).await, 1);
    busy.until_in_flight(1).await;
    assert_eq!(opened.state().await, "half_open");
    let other = second_idle_server(&opened.app, &[THREE_FAILURES]).await;
    other.advance(30);
    assert_eq!(dispatch_and_finish(&other, &mut dispatcher(&other, 1)).await, 1);
    assert_eq!(opened.receiver.count(), 4);
    gate.open();
    opened.dispatcher.finish().await;
    ledger::check(&opened.app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_probe_that_cannot_be_rendered_does_not_change_the_breaker() {
    let mut opened = OpenBreaker::start().await;
    let edit = json!({"transform": {"template": "{{ payload.user }}"}});
    opened.app.patch(&format!("/subscriptions/{}", id_of(&opened.subscription)), &edit).await.expect(200);
    publish(&opened.app, "a", json!({"user": 1})).await;
    opened.receiver.always(Reply::ok());
    opened.app.advance(30);
    for _ in 0..opened.parked.len() {
        assert_eq!(opened.dispatch().await, 1);
        assert_eq!((opened.state().await, opened.receiver.count()), (json!("half_open"), 3));
    }
    assert_eq!(opened.dispatch().await, 1);
    assert_eq!((opened.state().await, opened.receiver.count()), (json!("closed"), 4));
    ledger::check(&opened.app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn subscribers_to_breaker_events_are_notified_and_others_are_not() {
    let app = with_flags(&["--breaker-failures=2", "--breaker-seconds=1"]).await;
    let (failing, watching, everything) = (Receiver::start().await, Receiver::start().await, Receiver::start().await);
    failing.next(Reply::status(500));
    failing.next(Reply::status(500));
    let backoff = json!({"strategy": "fixed", "seconds": 0});
    let name = json!({"name": "billing", "event_types": ["bill"], "backoff": backoff});
    let subscription = app.subscribe(&failing.url("/hook"), name).await;
    app.subscribe(&watching.url("/"), json!({"event_types": ["waybill.*"]})).await;
    app.subscribe(&everything.url("/"), json!({"event_types": ["*"]})).await;
    publish_id(&app, "bill").await;
    let notifications = watching.received(2).await;
    let types: Vec<_> =
        notifications.iter().map(|request| request.header("waybill-event-type").expect("a type")).collect();
    assert_eq!(types, ["waybill.subscription.breaker_opened", "waybill.subscription.breaker_closed"]);
    let url = failing.url("/hook");
    let payload =
        json!({"subscription_id": id_of(&subscription), "name": "billing", "url": url, "reason": "breaker_opened"});
    assert_eq!(notifications[0].json(), payload);
    everything.received(1).await;
    let open = "SELECT count(*) FROM waybill.deliveries WHERE status IN ('PENDING', 'PROCESSING')";
    until("everything is done", async || app.count(open).await == 0).await;
    assert_eq!((failing.count(), watching.count(), everything.count()), (3, 2, 1));
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_failures_at_once_open_the_breaker_once() {
    let (app, receiver) = (with_flags(&[THREE_FAILURES]).await, Receiver::start().await);
    let gate = Gate::closed();
    receiver.always(Reply::status(500).held_by(&gate));
    app.subscribe(&receiver.url("/hook"), json!({"max_attempts": 1})).await;
    let ids: BTreeSet<i64> = join_all((0..16).map(|_| publish_id(&app, "a"))).await.into_iter().collect();
    receiver.until_in_flight(16).await;
    gate.open();
    for id in ids {
        super::until_status(&app, id, "FAILED").await;
    }
    assert_eq!(notices(&app).await, ["waybill.subscription.breaker_opened"]);
    ledger::check(&app).await;
}

/// Another transaction changes the endpoint between the read of its row and its lock.
#[tokio::test(flavor = "multi_thread")]
async fn a_success_concurrent_with_another_change_of_its_endpoint_closes_the_breaker() {
    let opened = OpenBreaker::start().await;
    let other = HeldRow::with_uncommitted(&opened.app, "UPDATE waybill.endpoints SET updated_at = now()").await;
    let (engine, url) = (opened.app.engine().clone(), opened.receiver.url("/hook"));
    let answered = EndpointNote { finding: Some(Finding::Answered), pause_seconds: None };
    let success = tokio::spawn(async move {
        engine.note_endpoint(EndpointKey { namespace: NamespaceId::DEFAULT, url: &url }, answered).await
    });
    opened.app.until_blocked_calls(1).await;
    other.unlock().await;
    success.await.expect("no panic").expect("it is noted");
    assert_eq!(opened.state().await, "closed");
    assert_eq!(opened.notices().await.last().expect("a notice"), "waybill.subscription.breaker_closed");
    ledger::check(&opened.app).await;
}
