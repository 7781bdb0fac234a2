//! Stored values that somebody has changed.

use serde_json::{Value, json};

use super::{change_rows, id_of_key, new_key, start, until_held};
use crate::support::receiver::Receiver;
use crate::support::{App, database, ledger, until};

/// Creates two subscriptions with two headers each, to `/one` and `/other`.
async fn subscribe_two(app: &App, receiver: &Receiver) -> [Value; 2] {
    let headers = |name: &str| json!({"headers": {"X-A": format!("a-of-{name}"), "X-B": format!("b-of-{name}")}});
    [
        app.subscribe(&receiver.url("/one"), headers("one")).await,
        app.subscribe(&receiver.url("/other"), headers("other")).await,
    ]
}

/// Returns how many requests a path has received.
fn requests_to(receiver: &Receiver, path: &str) -> usize {
    receiver.so_far().iter().filter(|request| request.path == path).count()
}

/// Changes rows of the first subscription, and shows that nothing is sent to it, while the other goes on. Then
/// repairs the rows, and shows that nothing was lost.
async fn is_held(tamper: &str) {
    let (app, receiver) = (start(&[&new_key()], None).await, Receiver::start().await);
    let [one, other] = subscribe_two(&app, &receiver).await;
    let backup = "CREATE TABLE public.secrets_before AS SELECT * FROM waybill.subscription_secrets; \
                  CREATE TABLE public.specs_before AS SELECT * FROM waybill.subscriptions";
    let tamper = tamper.replace("$ONE", &one["id"].to_string()).replace("$OTHER", &other["id"].to_string());
    change_rows(&app, &format!("{backup}; {tamper}")).await;
    let is_swapped = tamper.contains("swapped");
    let event = app.publish_typed("order.paid", json!(1)).await;
    until_held(&app, if is_swapped { 2 } else { 1 }).await;
    if !is_swapped {
        until("the other is sent", async || requests_to(&receiver, "/other") == 1).await;
    }
    assert_eq!(requests_to(&receiver, "/one"), 0, "{tamper}");
    let test = app.post_empty(&format!("/subscriptions/{}/test", one["id"])).await.expect(200).json();
    assert_eq!(test["error_kind"], "secret_unreadable", "{tamper}");
    let repair = "UPDATE waybill.subscription_secrets s SET secret = b.secret, expires_at = b.expires_at FROM public.secrets_before b WHERE b.id = s.id; \
                  UPDATE waybill.subscriptions s SET spec = b.spec FROM public.specs_before b WHERE b.id = s.id";
    change_rows(&app, repair).await;
    until("all is sent", async || app.event(event).await["status"] == "COMPLETED").await;
    for request in receiver.so_far() {
        assert_eq!(request.header("x-a"), Some(format!("a-of-{}", &request.path[1..]).as_str()));
    }
    assert_eq!(receiver.count(), 2);
    until_held(&app, 0).await;
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn swapped_secrets_of_two_subscriptions_are_refused() {
    is_held(
        "UPDATE waybill.subscription_secrets s SET secret = swapped.secret FROM waybill.subscription_secrets swapped \
         WHERE s.subscription_id IN ($ONE, $OTHER) AND swapped.subscription_id IN ($ONE, $OTHER) \
         AND s.subscription_id <> swapped.subscription_id",
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn swapped_settings_of_two_subscriptions_are_refused() {
    is_held(
        "UPDATE waybill.subscriptions s SET spec = (s.spec::jsonb || jsonb_build_object('headers', swapped.spec -> 'headers'))::json \
         FROM waybill.subscriptions swapped \
         WHERE s.id IN ($ONE, $OTHER) AND swapped.id IN ($ONE, $OTHER) AND s.id <> swapped.id",
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn headers_with_each_others_values_are_refused() {
    is_held(
        "UPDATE waybill.subscriptions SET spec = replace(replace(replace(spec::text, '\"X-A\"', '\"X-C\"'), \
         '\"X-B\"', '\"X-A\"'), '\"X-C\"', '\"X-B\"')::json WHERE id = $ONE",
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_character_of_a_secret_is_noticed() {
    is_held(
        "UPDATE waybill.subscription_secrets SET secret = overlay(secret placing \
         (CASE substr(secret, 40, 1) WHEN 'A' THEN 'B' ELSE 'A' END) from 40 for 1) WHERE subscription_id = $ONE",
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn truncated_and_foreign_texts_are_refused() {
    for text in ["left(secret, 60)", "left(secret, 10)", "'enc:v9:a:AAAA'", "'garbage'", "''"] {
        is_held(&format!("UPDATE waybill.subscription_secrets SET secret = {text} WHERE subscription_id = $ONE")).await;
    }
    let headers = r#"{"headers": {"X-A": {"encrypted": 5}}}"#;
    is_held(&format!("UPDATE waybill.subscriptions SET spec = (spec::jsonb || '{headers}')::json WHERE id = $ONE"))
        .await;
}

/// A request without a signature would be worse than none.
#[tokio::test(flavor = "multi_thread")]
async fn a_subscription_without_a_secret_is_held() {
    is_held("UPDATE waybill.subscription_secrets SET expires_at = now() WHERE subscription_id = $ONE").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replay_of_a_changed_copy_fails_and_becomes_a_dead_letter_again() {
    let key = new_key();
    let (app, receiver) = (start(&[&key], None).await, Receiver::start().await);
    let headers = json!({"headers": {"X-A": "a-secret-value"}, "max_attempts": 1});
    let subscription = app.subscribe(&receiver.url("/hook"), headers).await;
    let event = app.publish_and_fail(&receiver, "order.paid", json!(1)).await;
    let first = app.open_dead_letter(event).await["id"].clone();
    let tamper =
        "UPDATE waybill.dead_letters SET subscription = replace(subscription::text, '\"X-A\"', '\"X-B\"')::json";
    database::execute(&app.url, tamper).await;
    app.replay(&first, json!({"config": "original"})).await.expect(200);
    let delivery = app.only_delivery(event).await;
    until("it failed again", async || app.dead_letters("replayed=false").await.len() == 1).await;
    let attempts = app.until_delivery(delivery, "FAILED").await["attempts"].clone();
    assert_eq!(attempts[1]["error_kind"], "secret_unreadable");
    let told = attempts[1]["error_message"].as_str().expect("a text");
    assert!(told.contains("the header X-B") && told.contains(&id_of_key(&key)), "{told}");
    assert_eq!(receiver.count(), 1, "the replay was not sent");
    let view = app.get(&format!("/subscriptions/{}", subscription["id"])).await.expect(200).json();
    assert_eq!(view["endpoint"]["failures_in_row"], 1, "the endpoint has no part in it");
    // The present settings are readable, so a replay with them is sent.
    let second = app.open_dead_letter(event).await["id"].clone();
    app.replay(&second, json!({})).await.expect(200);
    assert_eq!(receiver.received(2).await[1].header("x-a"), Some("a-secret-value"));
    app.until_delivery(delivery, "COMPLETED").await;
    ledger::check(&app).await;
}
