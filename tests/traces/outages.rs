//! Collectors that are away, slow or refuse.

use serde_json::{Value, json};

use super::{Collector, counter, only};
use crate::support::receiver::{Gate, Reply};
use crate::support::{App, Options, until, within_patience};

/// The limits of docs/configuration.md.
const QUEUED_SPANS: usize = 4_096;
const BATCH_SPANS: usize = 512;

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_does_not_answer_holds_nobody_up_and_what_waits_for_it_is_bounded() {
    let collector = Collector::start().await;
    let gate = Gate::closed();
    collector.receiver.next(Reply::status(503).held_by(&gate));
    let app = collector.app(&[]).await;
    app.get("/tags").await.expect(200);
    collector.receiver.until_in_flight(1).await;
    // One span per settlement, and one per request.
    let unknown: Vec<Value> = (1..=1_000).map(|id| json!({"event_id": id, "action": "complete"})).collect();
    for _ in 0..6 {
        let settled =
            app.post("/events/settle", &json!({"worker_id": "w:1", "settlements": unknown})).await.expect(200);
        assert_eq!(settled.json()["results"].as_array().map(Vec::len), Some(1_000));
    }
    let dropped = counter(&app, "spans_dropped").await;
    let total = 1 + 6 * 1_001;
    assert!(dropped >= total - QUEUED_SPANS - BATCH_SPANS && dropped < total, "{dropped}");
    gate.open();
    // What was not dropped arrives.
    until("all other spans arrive", async || counter(&app, "spans_exported").await == total - dropped).await;
    assert_eq!(collector.so_far().len(), total - dropped);
    assert_eq!(counter(&app, "spans_dropped").await, dropped);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_is_away_costs_nothing_but_the_spans() {
    let collector = Collector::start().await;
    let flags = vec![collector.flag()];
    drop(collector);
    let app = App::start_with(Options { flags, ..Options::default() }).await;
    let id = app.publish_tagged("a").await;
    app.claim("a", "w:1").await.expect("an event");
    app.complete(id, "w:1").await.expect(200);
    // A publish, a claim and a completion, each with its request.
    until("the spans are given up", async || counter(&app, "spans_failed").await == 6).await;
    assert_eq!(counter(&app, "spans_exported").await, 0);
    within_patience(app.stop()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_asks_for_patience_gets_the_same_batch_again() {
    for busy in [Reply::status(503), Reply::too_many_requests("1"), Reply::close()] {
        let collector = Collector::start().await;
        collector.receiver.next(busy);
        let app = collector.app(&[]).await;
        app.get("/tags").await.expect(200);
        only(&collector.until_named("GET /tags").await, "GET /tags");
        let requests = collector.receiver.so_far();
        assert_eq!((requests.len(), &requests[0].body), (2, &requests[1].body));
        until("it counts", async || counter(&app, "spans_exported").await == 1).await;
        assert_eq!(counter(&app, "spans_failed").await, 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_that_is_refused_is_not_sent_again() {
    for refused in [400, 401, 500] {
        let collector = Collector::start().await;
        collector.receiver.next(Reply::status(refused));
        let app = collector.app(&[]).await;
        app.get("/tags").await.expect(200);
        until("it is refused", async || counter(&app, "spans_failed").await == 1).await;
        app.get("/workers").await.expect(200);
        let spans = collector.until_named("GET /workers").await;
        assert_eq!((spans.len(), collector.receiver.count()), (1, 2), "{refused}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn spans_that_a_collector_rejects_are_counted() {
    let collector = Collector::start().await;
    collector.reject(1);
    let app = collector.app(&[]).await;
    app.publish_tagged("a").await;
    until("it is rejected", async || counter(&app, "spans_failed").await == 1).await;
    assert_eq!((counter(&app, "spans_exported").await, collector.receiver.count()), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_stops_sends_what_waits() {
    let collector = Collector::start().await;
    let app = collector.app(&[]).await;
    app.publish_tagged("a").await;
    within_patience(app.stop()).await;
    let spans = collector.so_far();
    only(&spans, "publish");
    only(&spans, "POST /events");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_stops_although_its_collector_never_answers() {
    let collector = Collector::start().await;
    collector.receiver.always(Reply::never());
    let app = collector.app(&[]).await;
    app.publish_tagged("a").await;
    collector.receiver.until_in_flight(1).await;
    app.publish_tagged("a").await;
    within_patience(app.stop()).await;
    collector.receiver.until_in_flight(0).await;
}
