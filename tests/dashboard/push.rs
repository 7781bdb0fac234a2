//! The pages about pushes: subscriptions, deliveries and dead letters.

use serde_json::{Value, json};

use crate::support::receiver::Receiver;
use crate::support::records::{app_that_sends_nothing, one_attempt};
use crate::support::{App, Options, until};

async fn page(app: &App, path: &str) -> String {
    app.get(path).await.expect(200).text
}

/// Returns a server whose only subscription, with a breaker that opens at once, has refused an event. Returns the
/// subscription and the event as well.
async fn refused(app: App, receiver: &Receiver) -> (App, Value, i64) {
    let settings = json!({"name": "orders", "max_attempts": 1, "headers": {"Authorization": "Bearer t0k3n"}});
    let subscription = app.subscribe(&receiver.url("/hook/secret-path"), settings).await;
    let event = app.publish_and_fail(receiver, "order.paid", json!({"card": "4242"})).await;
    (app, subscription, event)
}

#[tokio::test(flavor = "multi_thread")]
async fn empty_lists_say_what_to_do_with_the_address_of_this_server() {
    let app = App::start().await;
    let subscriptions = page(&app, "/ui/subscriptions").await;
    assert!(subscriptions.contains(&format!("curl -X POST '{}/subscriptions'", app.base)), "{subscriptions}");
    let deliveries = page(&app, "/ui/deliveries").await;
    assert!(deliveries.contains(&format!("curl -X POST '{}/events'", app.base)), "{deliveries}");
    assert!(page(&app, "/ui/dead-letters").await.contains("No dead letters."));
    assert!(page(&app, "/ui/deliveries?status=FAILED").await.contains("No delivery matches."));
    for path in ["/ui/subscriptions/1", "/ui/subscriptions/1/edit", "/ui/deliveries/1", "/ui/dead-letters/1"] {
        app.get(path).await.expect(404);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failing_endpoint_is_seen_in_the_list_and_on_its_page() {
    let flags = vec!["--breaker-failures=1".into()];
    let app = App::start_with(Options { flags, ..Options::default() }).await;
    let receiver = Receiver::start().await;
    let (app, subscription, event) = refused(app, &receiver).await;
    let own = format!("/ui/subscriptions/{}", subscription["id"]);
    until("the breaker is open", async || page(&app, &own).await.contains("breaker open, tries")).await;
    let list = page(&app, "/ui/subscriptions").await;
    for text in ["breaker open, tries", "orders", ">0 %", " of 1", "/hook/…", &format!("href=\"{own}\"")] {
        assert!(list.contains(text), "{text} in {list}");
    }
    let one = page(&app, &own).await;
    let delivery = app.only_delivery(event).await;
    for text in
        ["Failures in a row", "500", "Resume", "Send a test", "Rotate secret", "Disable", "Delete", "Authorization"]
    {
        assert!(one.contains(text), "{text} in {one}");
    }
    assert!(one.contains(&format!("/ui/deliveries/{delivery}")), "{one}");
    for text in [&list, &one] {
        assert!(!text.contains("t0k3n") && !text.contains("secret-path") && !text.contains("whsec_"), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_form_has_the_present_settings_and_not_the_values_of_headers() {
    let app = App::start().await;
    let settings = json!({
        "name": "a \"quoted\" <name>", "event_types": ["order.*", "user.created"], "filter": {"payload.amount": {"$gt": 10}},
        "transform": {"template": "{{ payload.order }}", "content_type": "text/plain"}, "headers": {"X-Token": "t0k3n"},
    });
    let subscription = app.subscribe("https://shop.example/hook/path", settings).await;
    let form = page(&app, &format!("/ui/subscriptions/{}/edit", subscription["id"])).await;
    for text in [
        "data-if-match=\"&quot;1&quot;\"",
        "value=\"order.*, user.created\"",
        "value=\"https://shop.example/hook/path\"",
        "a &quot;quoted&quot; &lt;name&gt;",
        "{{ payload.order }}",
        "&quot;$gt&quot;: 10",
        "Stored: X-Token",
        "data-check-path=\"/subscriptions/check\"",
    ] {
        assert!(form.contains(text), "{text} in {form}");
    }
    assert!(!form.contains("t0k3n"), "{form}");
    assert!(page(&app, "/ui/subscriptions/new").await.contains("data-secret=\"secret\""));
}

#[tokio::test(flavor = "multi_thread")]
async fn deliveries_and_dead_letters_are_filtered_as_in_the_api() {
    let (app, receiver) = (App::start().await, Receiver::start().await);
    let (app, subscription, failed) = refused(app, &receiver).await;
    let sent = app.publish_typed("order.paid", json!({})).await;
    let (failed, sent) = (app.only_delivery(failed).await, app.only_delivery(sent).await);
    app.until_delivery(sent, "COMPLETED").await;
    let shows = async |query: &str| {
        let list = page(&app, &format!("/ui/deliveries?{query}")).await;
        [failed, sent].map(|id| list.contains(&format!("data-id=\"{id}\"")))
    };
    assert_eq!(shows("").await, [true, true]);
    assert_eq!(shows("status=FAILED&event_id=&since=").await, [true, false]);
    assert_eq!(shows(&format!("subscription_id={}&status=COMPLETED", subscription["id"])).await, [false, true]);
    let wrong = page(&app, "/ui/deliveries?event_id=x&status=WRONG").await;
    assert!(wrong.contains("role=\"alert\"") && wrong.contains("value=\"x\""), "{wrong}");
    for path in ["/ui/deliveries", "/ui/dead-letters", "/ui/audit"] {
        let wrong = page(&app, &format!("{path}?since=yesterday")).await;
        assert!(wrong.contains("since must be") && wrong.contains("<nav"), "{path}: {wrong}");
        let day = page(&app, &format!("{path}?since=24h")).await;
        assert!(day.contains("data-id=") && day.contains("value=\"24h\""), "{path}: {day}");
        assert!(!page(&app, &format!("{path}?until=24h")).await.contains("data-id="), "{path}");
    }
    let named = page(&app, "/ui/deliveries").await;
    assert!(named.contains(">orders</a>") && named.contains("<bdi>"), "{named}");
    let letters = page(&app, "/ui/dead-letters?replayed=false").await;
    assert!(letters.contains("exhausted") && letters.contains("data-noun=\"dead letters\""), "{letters}");
    assert!(page(&app, "/ui/dead-letters?replayed=true").await.contains("No dead letter matches."));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delivery_and_a_dead_letter_show_what_happened() {
    let (app, receiver) = (App::start().await, Receiver::start().await);
    let (app, _, event) = refused(app, &receiver).await;
    let delivery = page(&app, &format!("/ui/deliveries/{}", app.only_delivery(event).await)).await;
    for text in ["500", "<summary>the receiver answered 500</summary>", ">no</pre>", "1 of 1", "Retry"] {
        assert!(delivery.contains(text), "{text} in {delivery}");
    }
    let letter = app.open_dead_letter(event).await["id"].clone();
    let letter = page(&app, &format!("/ui/dead-letters/{letter}")).await;
    for text in
        ["exhausted", "&quot;card&quot;: &quot;4242&quot;", "500", "Edit the payload", "new_webhook_id", "/hook/…"]
    {
        assert!(letter.contains(text), "{text} in {letter}");
    }
    assert!(!letter.contains("secret-path") && !letter.contains("t0k3n"), "{letter}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payload_with_redacted_parts_is_not_offered_for_editing() {
    let (app, receiver) = (App::start().await, Receiver::start().await);
    let (app, _, event) = refused(app, &receiver).await;
    app.patch("/namespaces/default", &json!({"settings": {"redact": ["payload.card"]}})).await.expect(200);
    let letter = app.open_dead_letter(event).await["id"].clone();
    let letter = page(&app, &format!("/ui/dead-letters/{letter}")).await;
    assert!(
        letter.contains("[redacted]") && !letter.contains("4242") && !letter.contains("Edit the payload"),
        "{letter}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_sees_no_buttons_and_no_contents() {
    let (app, receiver) = (App::with_keys().await, Receiver::start().await);
    let (app, subscription, event) = refused(app, &receiver).await;
    let (delivery, letter) = (app.only_delivery(event).await, app.open_dead_letter(event).await["id"].clone());
    let reader = app.holder_of("read").await;
    for path in [
        "/ui/subscriptions".to_owned(),
        format!("/ui/subscriptions/{}", subscription["id"]),
        "/ui/deliveries".to_owned(),
        format!("/ui/deliveries/{delivery}"),
        "/ui/dead-letters".to_owned(),
        format!("/ui/dead-letters/{letter}"),
    ] {
        let text = page(&reader, &path).await;
        for hidden in ["data-action", "data-bulk", "data-form", "data-select", ">no</pre>", "4242", "New subscription"]
        {
            assert!(!text.contains(hidden), "{hidden} in {path}: {text}");
        }
    }
    reader.get("/ui/subscriptions/new").await.expect(403);
    reader.get(&format!("/ui/subscriptions/{}/edit", subscription["id"])).await.expect(403);
}

#[tokio::test(flavor = "multi_thread")]
async fn another_namespace_has_its_own() {
    let app = App::with_keys().await;
    app.post("/namespaces", &json!({"name": "other"})).await.expect(201);
    let subscription = app.subscribe("https://shop.example/hook", one_attempt()).await;
    assert!(page(&app, "/ui/subscriptions").await.contains("data-id=\""));
    assert!(!page(&app, "/ui/subscriptions?namespace=other").await.contains("data-id=\""));
    app.get(&format!("/ui/subscriptions/{}?namespace=other", subscription["id"])).await.expect(404);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_is_counted_and_hostile_names_are_text() {
    let app = app_that_sends_nothing().await;
    let subscription = app.subscribe("https://shop.example/hook", json!({"name": "<script>alert(1)</script>"})).await;
    for _ in 0..3 {
        app.publish_typed("order.paid", json!({})).await;
    }
    for path in ["/ui/subscriptions".to_owned(), format!("/ui/subscriptions/{}", subscription["id"])] {
        let text = page(&app, &path).await;
        assert!(text.contains("&lt;script&gt;") && !text.contains("<script>alert"), "{path}");
        assert!(text.contains(">3</"), "{path}: {text}");
    }
}
