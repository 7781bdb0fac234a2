//! Keys that are not known: typos, guesses, and a database that is away.

use serde_json::json;
use waybill::domain::api_key::ApiKey;

use crate::support::{App, database};

/// Returns a key that has the right form and does not exist.
fn unknown_key() -> String {
    ApiKey::generate().expect("random bytes").as_text().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn text_that_is_no_key_is_refused_with_a_hint() {
    let app = App::with_keys().await;
    let mut typo = unknown_key();
    typo.replace_range(10..11, if &typo[10..11] == "x" { "y" } else { "x" });
    for garbage in ["", "nonsense", &typo] {
        let problem = app.sending(garbage).get("/events").await.problem(401, "unauthenticated");
        assert!(problem["detail"].as_str().expect("text").contains("typo"), "{problem}");
    }
    let basic = app.as_stranger().client.get(format!("{}/events", app.base)).basic_auth("ann", Some("pw"));
    assert_eq!(basic.send().await.expect("a response").status(), 401);
    let twice = app.client.get(format!("{}/events", app.base)).header("authorization", "Bearer x");
    assert_eq!(twice.send().await.expect("a response").status(), 401);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_that_guesses_has_to_wait_and_known_keys_still_work() {
    let app = App::with_keys().await;
    let reader = app.make_key(json!({"scopes": ["read"]})).await;
    app.holding(&reader).get("/events").await.expect(200);
    // The budget of the address, and what is reserved for all addresses whose budgets are used up.
    for _ in 0..10 + 5 {
        app.sending(&unknown_key()).get("/events").await.problem(401, "unauthenticated");
    }
    let refused = app.sending(&unknown_key()).get("/events").await;
    let seconds: u64 = refused.header("retry-after").expect("a time").parse().expect("seconds");
    assert!((1..=6).contains(&seconds), "{seconds}");
    refused.problem(429, "too_many_guesses");
    app.holding(&reader).get("/events").await.expect(200);
    // A typo costs nothing and is not counted.
    app.sending("nonsense").get("/events").await.problem(401, "unauthenticated");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_good_key_that_is_not_in_memory_works_from_an_address_that_has_sent_too_many_unknown_ones() {
    let app = App::with_keys().await;
    let reader = app.make_key(json!({"scopes": ["read"]})).await;
    for _ in 0..10 {
        app.sending(&unknown_key()).get("/events").await.problem(401, "unauthenticated");
    }
    app.holding(&reader).get("/events").await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_key_that_is_repeated_is_one_guess() {
    let app = App::with_keys().await;
    let key = unknown_key();
    for _ in 0..30 {
        app.sending(&key).get("/events").await.problem(401, "unauthenticated");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_is_made_after_it_was_refused_is_known_at_once() {
    let app = App::with_keys().await;
    let key = ApiKey::generate().expect("random bytes");
    let holder = app.sending(key.as_text());
    holder.get("/events").await.problem(401, "unauthenticated");
    let make = format!(
        "WITH k AS (INSERT INTO waybill.api_keys (name, scopes, created_at) VALUES ('late', '{{read}}', now()) RETURNING id) \
         INSERT INTO waybill.api_key_secrets (hash, namespace_id, key_id, prefix, created_at) \
         SELECT sha256('{}'), 1, id, 'wb_', now() FROM k; \
         UPDATE waybill.key_catalog SET generation = waybill.random_generation()",
        key.as_text()
    );
    database::execute(&app.url, &make).await;
    app.engine().refresh_keys().await.expect("the database answers");
    holder.get("/events").await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn while_the_database_is_away_known_keys_are_known_and_others_get_503() {
    let app = App::with_keys().await;
    let reader = app.holder_of("read").await;
    reader.get("/metrics").await.expect(200);
    database::drop_by_force(&app.url).await;
    // Metrics need a key and no database.
    reader.get("/metrics").await.expect(200);
    reader.get("/keys").await.problem(403, "scope_missing");
    app.sending(&unknown_key()).get("/metrics").await.problem(503, "database_unavailable");
    app.as_stranger().get("/metrics").await.problem(401, "unauthenticated");
}
