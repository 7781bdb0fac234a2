//! The page of an event.

use serde_json::json;

use crate::support::receiver::{Receiver, Reply};
use crate::support::records::one_attempt;
use crate::support::work::{Naming, W1, W2};
use crate::support::{App, Options, database, until};

async fn page(app: &App, id: i64) -> String {
    app.get(&format!("/ui/events/{id}")).await.expect(200).text
}

#[track_caller]
fn assert_has(page: &str, texts: &[&str]) {
    for text in texts {
        assert!(page.contains(text), "{text} in {page}");
    }
}

/// Returns a page without its markup.
fn text_of(page: &str) -> String {
    let words = page.split('<').filter_map(|part| part.split_once('>')).map(|(_, text)| text);
    words.collect::<String>().split_whitespace().collect::<Vec<_>>().join(" ")
}

#[tokio::test(flavor = "multi_thread")]
async fn the_life_shows_waits_claims_to_scale_failures_and_refused_settlements() {
    let app = App::with_fixed_clock().await;
    let id = app.publish(json!({"title": "x", "tags": "a", "backoff": {"strategy": "fixed", "seconds": 5}})).await;
    app.advance(5);
    let lost = app.claim_one("a", W1).await;
    app.advance(30);
    app.operate(id, "reset?reason=it+hangs").await.expect(200);
    app.advance(60);
    app.claim_one("a", W2).await;
    app.advance(3);
    app.settle(&lost, "complete", Naming::Lease).await.problem(409, "lease_lost");
    app.engine().record_refused_settlements().await.expect("a round");
    app.advance(1);
    app.fail(id, W2).await.expect(200);
    let text = text_of(&page(&app, id).await);
    let expected = [
        "published",
        "waited 5 s",
        &format!("PICKED by {W1} attempt 1, lease 5 min"),
        "held for 30 s",
        &format!("RESET from {W1}"),
        "it hangs",
        "waited 1 min",
        &format!("PICKED by {W2} attempt 1"),
        &format!("refused late completion by {W1} (lease_lost)"),
        &format!("FAILED by {W2}"),
        "↻ waits 5 s until",
        "1 of 3 failed",
    ];
    let mut from = 0;
    for text_part in expected {
        let at = text[from..].find(text_part).unwrap_or_else(|| panic!("{text_part} behind {from} in {text}"));
        from += at;
    }
    assert_has(&page(&app, id).await, &["held for 30 s of a lease of 5 min", "<rect"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_expired_says_so_and_nothing_about_heartbeats() {
    let app = App::with_fixed_clock().await;
    let id = app.publish_tagged("a").await;
    app.claim_by(&json!({"tags": ["a"], "worker_id": W1, "max": 1, "lease_seconds": 1})).await;
    app.advance(3);
    assert_eq!(app.reap().await, 1);
    let text = text_of(&page(&app, id).await);
    assert!(text.contains("lease expired, reset 2 s later"), "{text}");
    app.claim_by(&json!({"tags": ["a"], "worker_id": W1, "max": 1, "lease_seconds": 1})).await;
    app.advance(60);
    assert_eq!(app.reap().await, 1);
    let text = text_of(&page(&app, id).await);
    assert!(text.contains("held for 1 min, until its lease had expired"), "{text}");
    assert!(!text.contains("heartbeats"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_without_a_log_has_its_publication_and_its_wait() {
    let app = App::start().await;
    let id = app.publish_tagged("a").await;
    let page = page(&app, id).await;
    assert_has(&page, &["published", "waits since", "data-live-from", "Cancel"]);
    assert!(!page.contains("data-live-end") && !page.contains(">Retry<") && !page.contains("id=\"payload\""), "{page}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_present_claim_shows_its_progress_its_lease_and_who_wants_it_to_stop() {
    let app = App::with_keys().await;
    let id = app.publish_tagged("a").await;
    let claim = app.claim_one("a", W1).await;
    app.settle_with(&claim, "heartbeat", json!({"progress": {"done": 3, "of": 8}, "lease_seconds": 600}))
        .await
        .expect(200);
    app.operate(id, "cancel?reason=wrong+file").await.expect(200);
    let text = text_of(&page(&app, id).await);
    for part in
        ["lease until", "progress {&quot;done&quot;:", "cancel requested by the admin", "wrong file", "attempt 1 runs"]
    {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert!(!text.contains("Cancel "), "it was requested already");
}

#[tokio::test(flavor = "multi_thread")]
async fn facts_lead_along_correlation_id_ordering_key_and_labels() {
    let app = App::start().await;
    let mut ids = Vec::new();
    for _ in 0..3 {
        let event = json!({"title": "x", "tags": "a", "correlation_id": "order 17", "ordering_key": "customer-9",
                           "labels": {"team": "core"}});
        ids.push(app.publish(event).await);
    }
    let last = page(&app, ids[2]).await;
    assert_has(&last, &["2 ahead", "3 events", "q=correlation%3A%22order+17%22", "q=key%3Acustomer-9"]);
    assert_has(&last, &["q=label.team%3Dcore", &format!("/ui/events/{}\"", ids[0])]);
    assert!(!page(&app, ids[0]).await.contains(" ahead"));
    app.complete(app.claim_one("a", W1).await.event_id, W1).await.expect(200);
    assert_has(&page(&app, ids[2]).await, &["1 ahead", &format!("/ui/events/{}\"", ids[1])]);
}

#[tokio::test(flavor = "multi_thread")]
async fn attempts_of_pushes_stand_in_the_life_with_their_answer() {
    let (app, receiver) = (App::start().await, Receiver::start().await);
    receiver.always(Reply::status(500).body("<b>out of order</b>"));
    let mut fields = one_attempt();
    fields["event_types"] = json!(["order.paid"]);
    fields["method"] = "PUT".into();
    fields["name"] = "orders".into();
    let subscription = app.subscribe(&receiver.url("/hooks/secret-token"), fields).await["id"].clone();
    let id = app.publish(json!({"title": "x", "event_type": "order.paid"})).await;
    until("it failed", async || app.status(id).await == "FAILED").await;
    let delivery = app.deliveries_of(id).await[0]["id"].clone();
    let page = page(&app, id).await;
    assert_has(&page, &["push FAILED", "HTTP 500", "&lt;b&gt;out of order&lt;/b&gt;", "request and answer"]);
    assert_has(&page, &[&app.webhook_id(id), "/hooks/…", "subscription_version"]);
    assert_has(&page, &[&format!("/ui/deliveries/{delivery}\""), &format!("/ui/subscriptions/{subscription}\"")]);
    assert!(!page.contains("secret-token") && !page.contains("data-live-end"), "it may be retried: {page}");
    assert_has(&page, &["PUT http://127.0.0.1", ">orders</a>"]);
    assert!(!page.contains(">attempts<"), "the event itself is not attempted");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_that_an_open_breaker_holds_says_so_on_all_pages() {
    let flags = vec!["--breaker-failures=1".into()];
    let app = App::start_with(Options { flags, ..Options::default() }).await;
    let receiver = Receiver::start().await;
    receiver.always(Reply::status(500));
    let fields = json!({"name": "orders", "backoff": {"strategy": "fixed", "seconds": 0}});
    app.subscribe(&receiver.url("/hook"), fields).await;
    let tried = app.publish(json!({"event_type": "order.paid"})).await;
    until("the breaker is open", async || page(&app, tried).await.contains("held: breaker open, tries")).await;
    let untried = app.publish(json!({"event_type": "order.paid"})).await;
    for id in [tried, untried] {
        let delivery = app.only_delivery(id).await;
        for path in [format!("/ui/events/{id}"), format!("/ui/deliveries/{delivery}"), "/ui/deliveries".to_owned()] {
            let page = app.get(&path).await.expect(200).text;
            assert_has(&page, &["held: breaker open, tries", "orders"]);
            assert!(!page.contains("next_attempt_at") && !page.contains("↻ waits"), "{path}: {page}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_life_shows_its_latest_entries_and_says_how_many_come_before() {
    let app = App::start().await;
    let id = app.publish_tagged("a").await;
    let lines = format!(
        "INSERT INTO waybill.event_log (event_id, action, lease_id, attempt, reason, error_message) \
         SELECT {id}, 'FAILED', n, 1, 'line ' || n || '.', repeat('y', 9000) FROM generate_series(1, 620) n"
    );
    database::execute(&app.url, &lines).await;
    let page = page(&app, id).await;
    assert_has(&page, &["120 earlier entries", &format!("/logs?event_id={id}"), "line 121.", "line 620."]);
    assert!(!page.contains("line 120."));
    assert!(page.len() < 2 * 1024 * 1024, "{} bytes", page.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_live_part_has_no_payload_and_ends_with_the_event() {
    let app = App::start().await;
    let payload = json!({"text": "x".repeat(1_000_000)});
    let id = app.publish(json!({"title": "Large one", "tags": "a", "payload": payload})).await;
    let whole = page(&app, id).await;
    assert!(whole.contains("Cut here") && whole.len() < 400 * 1024, "{} bytes", whole.len());
    let path = format!("/ui/events/{id}?part=live");
    let live = app.get(&path).await.expect(200).text;
    assert!(live.len() < 20 * 1024 && !live.contains("xxxx") && !live.contains("<html"), "{} bytes", live.len());
    assert!(live.contains("data-live=\"life\"") && !live.contains("data-live-end"), "{live}");
    app.claim_one("a", W1).await;
    app.complete(id, W1).await.expect(200);
    assert!(app.get(&path).await.expect(200).text.contains("data-live-end"));
    app.get(&format!("/ui/events/{id}?part=other")).await.expect(400);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_document_is_copied_byte_for_byte_and_shown_raw_or_pretty() {
    let app = App::with_keys().await;
    let payload = "{\"n\":9007199254740993,\r\n \"price\": 1.10}";
    let body = format!(r#"{{"title": "x", "tags": "a", "payload": {payload}}}"#);
    let id = app.post_text("/events", &body).await.expect(201).json()["id"].as_i64().expect("an id");
    let whole = app.get(&format!("/ui/events/{id}?part=payload")).await.expect(200);
    assert_eq!(whole.text, payload);
    assert!(whole.header("content-disposition").expect("a name").contains(&format!("event-{id}-payload.json")));
    assert_has(&page(&app, id).await, &["{\n  &quot;n&quot;: 9007199254740993,", "show=raw#payload"]);
    let raw = app.get(&format!("/ui/events/{id}?show=raw")).await.expect(200).text;
    assert_has(&raw, &["{&quot;n&quot;:9007199254740993,\r\n", "show=raw&amp;part=live"]);
    app.get(&format!("/ui/events/{id}?part=result")).await.expect(404);
    app.holder_of("read").await.get(&format!("/ui/events/{id}?part=payload")).await.expect(403);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_sees_neither_errors_nor_answers_nor_where_it_came_from() {
    let app = App::with_keys().await;
    let id = app.publish_tagged("a").await;
    app.claim_one("a", W1).await;
    let failure = json!({"worker_id": W1, "error_message": "card 4242 declined"});
    app.post(&format!("/events/{id}/fail"), &failure).await.expect(200);
    let reader = app.holder_of("read").await;
    let hidden = page(&reader, id).await;
    assert!(!hidden.contains("4242") && !hidden.contains("the admin") && !hidden.contains("data-action"), "{hidden}");
    assert!(hidden.contains("Its error is hidden"));
    assert_has(&page(&app, id).await, &["card 4242 declined", "by <strong>the admin</strong>"]);
}
