//! Payloads pass through unchanged. The tests compare slices of the responses' text, never parsed
//! values: a parser would hide the very differences that matter.

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;
use tokio::runtime::Handle;

use crate::support::App;

const VERBATIM: [&str; 38] = [
    "null",
    "true",
    "0",
    "-0",
    "1",
    "1.0",
    "1.00",
    "1e5",
    "1E+05",
    "-0.0e-0",
    "1e400",
    "9007199254740993",
    "18446744073709551616",
    "123456789012345678901234567890123456789012345678901234567890",
    "0.1000000000000000055511151231257827021181583404541015625",
    r#""""#,
    r#""null""#,
    r#""\u0000""#,
    r#""a\u0000b""#,
    r#""\ud800""#,
    r#""\udc00\ud800""#,
    r#""\ud83d\ude00 \uD83D\uDE00 😀""#,
    "\"ü é e\u{301} € \u{2028} \u{feff} \u{7f} \u{10ffff}\"",
    r#""\/ / \b\f\n\r\t \" \\ \u00e9 \u00E9""#,
    "{}",
    "{ }",
    "[]",
    "[\n\t]",
    r#"{"b":1,"a":2}"#,
    r#"{"a":1,"a":2}"#,
    r#"{"":"","\u0000":0,"\ud800":1}"#,
    "{ \"z\" :\t[ 1 ,\n 2.0 ,\r\n 3e0 ] , \"y\" : null }",
    r#"{"1":1,"1.0":1.0,"10":10}"#,
    r"[1,1.0,1.00,1e0]",
    r#"[null,true,false,"",{},[]]"#,
    r#"{"payload":{"payload":1}}"#,
    r#"{"id":-1,"status":"FAILED","lease_id":99}"#,
    r#""'; DROP TABLE waybill.events; -- $1 {} [[[[""#,
];

#[derive(Deserialize)]
struct Carrier<'a> {
    #[serde(borrow)]
    payload: &'a RawValue,
}

#[derive(Deserialize)]
struct Carriers<'a> {
    #[serde(borrow)]
    events: Vec<Carrier<'a>>,
}

/// Returns the bytes of the payload in a response that is an event.
fn payload(text: &str) -> &str {
    serde_json::from_str::<Carrier<'_>>(text).expect("an event").payload.get()
}

/// Returns the bytes of the payloads in a response that holds events.
fn payloads(text: &str) -> Vec<&str> {
    let carriers: Carriers<'_> = serde_json::from_str(text).expect("events");
    carriers.events.into_iter().map(|event| event.payload.get()).collect()
}

fn event(payload: &str) -> String {
    format!(r#"{{"title":"a job","tags":"email","payload":{payload}}}"#)
}

fn batch(payloads: &[impl AsRef<str>]) -> String {
    let events: Vec<String> = payloads.iter().map(|payload| event(payload.as_ref())).collect();
    format!(r#"{{"events":[{}]}}"#, events.join(","))
}

fn nested(depth: usize) -> String {
    format!("{}{}", r#"{"a":["#.repeat(depth / 2), "]}".repeat(depth / 2))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payload_comes_back_byte_for_byte_when_published_read_and_subscribed_to() {
    let app = App::start().await;
    for text in VERBATIM {
        let published = app.post_text("/events", &event(text)).await.expect(201);
        assert_eq!(payload(&published.text), text, "published");
        let read = app.get(published.header("location").expect("a location")).await.expect(200);
        assert_eq!(payload(&read.text), text, "read");
        let subscribed = app.get("/events/subscribe?tags=email&worker_id=w:1").await.expect(200);
        assert_eq!(payload(&subscribed.text), text, "subscribed to");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn payloads_come_back_byte_for_byte_in_batches() {
    let app = App::start().await;
    app.post_text("/events/batch", &batch(&VERBATIM)).await.expect(201);
    let claimed =
        app.post_text("/events/claim", r#"{"tags":["email"],"worker_id":"w:1","max":1000}"#).await.expect(200);
    assert_eq!(payloads(&claimed.text), VERBATIM);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payload_comes_back_byte_for_byte_from_settling_with_a_claim() {
    let app = App::start().await;
    let text = "{ \"b\" : 1.0 , \"a\" : 12345678901234567890123 }";
    app.post_text("/events/batch", &batch(&["1", text])).await.expect(201);
    let first = app.claim("email", "w:1").await.expect("an event");
    let settlement = json!({"event_id": first["id"], "action": "complete"});
    let body = json!({"worker_id": "w:1", "settlements": [settlement], "claim": {"tags": ["email"]}});
    let settled = app.post("/events/settle", &body).await.expect(200);
    assert_eq!(payloads(&settled.text), [text]);
}

#[tokio::test(flavor = "multi_thread")]
async fn whitespace_around_a_payload_is_not_part_of_it() {
    let app = App::start().await;
    let published = app.post_text("/events", &event(" \n { \"a\" : 1 } \t ")).await.expect(201);
    assert_eq!(payload(&published.text), "{ \"a\" : 1 }");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payload_may_nest_128_deep_and_no_deeper() {
    let app = App::start().await;
    let deepest = nested(128);
    let published = app.post_text("/events", &event(&deepest)).await.expect(201);
    assert_eq!(payload(&published.text), deepest);
    let subscribed = app.get("/events/subscribe?tags=email&worker_id=w:1").await.expect(200);
    assert_eq!(payload(&subscribed.text), deepest);
    app.post_text("/events", &event(&format!("[{deepest}]"))).await.names(&["payload"]);
    app.post_text("/events", &event(&"[".repeat(500_000))).await.problem(400, "malformed_json");
    app.post_text("/events", &event(&format!("{}{}", "[".repeat(500_000), "]".repeat(500_000))))
        .await
        .names(&["payload"]);
    app.post_text("/events/batch", &batch(&["1", &format!("[{deepest}]")])).await.names(&["events[1].payload"]);
    assert_eq!(app.count("SELECT count(*) FROM waybill.events").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payload_of_one_mebibyte_passes_and_one_byte_more_does_not() {
    const MEBIBYTE: usize = 1024 * 1024;
    let app = App::start().await;
    // Two bytes per character, plus the quotes: the limit counts bytes as sent, not characters.
    let largest = format!("\"{}\"", "ü".repeat((MEBIBYTE - 2) / 2));
    assert_eq!(largest.len(), MEBIBYTE);
    let published = app.post_text("/events", &event(&largest)).await.expect(201);
    assert!(payload(&published.text) == largest, "published");
    let subscribed = app.get("/events/subscribe?tags=email&worker_id=w:1").await.expect(200);
    assert!(payload(&subscribed.text) == largest, "subscribed to");
    for too_large in [format!("\"x{}", &largest[1..]), format!("[{}1]", " ".repeat(MEBIBYTE - 2))] {
        assert_eq!(too_large.len(), MEBIBYTE + 1);
        let problem = app.post_text("/events", &event(&too_large)).await.problem(413, "payload_too_large");
        assert_eq!(problem["errors"][0]["field"], "payload");
    }
    assert_eq!(app.count("SELECT count(*) FROM waybill.events").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_sends_a_far_too_large_body_gets_a_response() {
    let app = App::start().await;
    for _ in 0..5 {
        let problem = app.post_text("/events", &event(&" ".repeat(8_000_000))).await.problem(413, "payload_too_large");
        assert_eq!(problem["errors"][0]["field"], "body");
    }
}

/// Generates JSON with any whitespace, numbers and escapes.
fn json_text() -> impl Strategy<Value = String> {
    const SPACE: &str = "[ \t\r\n]{0,2}";
    let leaf = prop_oneof![
        Just("null".to_owned()),
        Just("true".to_owned()),
        Just("false".to_owned()),
        "-?(0|[1-9][0-9]{0,40})(\\.[0-9]{1,20})?([eE][+-]?[0-9]{1,5})?",
        string_text(),
    ];
    leaf.prop_recursive(4, 40, 6, |inner| {
        let item = (SPACE, inner.clone(), SPACE).prop_map(|(before, value, after)| format!("{before}{value}{after}"));
        let pair = (SPACE, string_text(), SPACE, item.clone())
            .prop_map(|(before, name, after, value)| format!("{before}{name}{after}:{value}"));
        prop_oneof![
            prop::collection::vec(item, 0..6).prop_map(|items| format!("[{}]", items.join(","))),
            prop::collection::vec(pair, 0..6).prop_map(|pairs| format!("{{{}}}", pairs.join(","))),
        ]
    })
}

fn string_text() -> impl Strategy<Value = String> {
    r#""([^"\\\x00-\x1f]|\\["\\/bfnrt]|\\u[0-9a-fA-F]{4}){0,12}""#
}

#[tokio::test(flavor = "multi_thread")]
async fn any_json_text_comes_back_byte_for_byte() {
    let app = App::start().await;
    let handle = Handle::current();
    let config = Config { cases: 24, failure_persistence: None, ..Config::default() };
    let outcome = tokio::task::block_in_place(|| {
        TestRunner::new(config).run(&prop::collection::vec(json_text(), 1..40), |texts| {
            handle.block_on(async {
                app.post_text("/events/batch", &batch(&texts)).await.expect(201);
                let body = json!({"tags": ["email"], "worker_id": "w:1", "max": 1000});
                let claimed = app.post("/events/claim", &body).await.expect(200);
                prop_assert_eq!(payloads(&claimed.text), texts.iter().map(String::as_str).collect::<Vec<_>>());
                Ok(())
            })
        })
    });
    outcome.unwrap_or_else(|failure| panic!("{failure}"));
}
