//! What webhooks become.

use serde_json::json;

use super::*;
use crate::domain::event::NewEvent;
use crate::domain::ids::SourceId;
use crate::domain::input::InputError;
use crate::domain::limits;

const JSON: (&str, &str) = ("Content-Type", "application/json; charset=utf-8");

fn incoming(source: &SourceSpec, headers: &[(&str, &str)], body: &[u8]) -> Result<NewEvent, InputError> {
    source.incoming(SourceId(7), &webhook(headers, body))
}

/// Returns the type and the idempotency key of a webhook's event.
fn type_and_key(provider: &str, headers: &[(&str, &str)], body: &str) -> (String, Option<String>) {
    let spec = source(&json!({"name": "fallback", "provider": provider, "verify": {"secret": WHSEC}}));
    let incoming = incoming(&spec, &[&[JSON], headers].concat(), body.as_bytes()).unwrap();
    (incoming.event_type.unwrap(), incoming.idempotency_key.map(|key| key.key))
}

#[test]
fn the_presets_find_types_and_keys() {
    let found = |event_type: &str, key: &str| (event_type.to_owned(), Some(key.to_owned()));
    let github = [("X-GitHub-Event", "push"), ("X-GitHub-Delivery", "72d3162e")];
    assert_eq!(type_and_key("github", &github, "{}"), found("push", "72d3162e"));
    let stripe = r#"{"id": "evt_1", "object": "event", "type": "charge.succeeded"}"#;
    assert_eq!(type_and_key("stripe", &[], stripe), found("charge.succeeded", "evt_1"));
    let slack = r#"{"type": "event_callback", "event_id": "Ev1", "event": {"type": "app_mention"}}"#;
    assert_eq!(type_and_key("slack", &[], slack), found("app_mention", "Ev1"));
    let shopify = [("X-Shopify-Topic", "orders/create"), ("X-Shopify-Webhook-Id", "b54557e4")];
    assert_eq!(type_and_key("shopify", &shopify, "{}"), found("orders/create", "b54557e4"));
    assert_eq!(type_and_key("standard", &[("webhook-id", "msg_1")], r#"{"type": "a.b"}"#), found("a.b", "msg_1"));
    let gitlab = [("X-Gitlab-Event", "Push Hook"), ("Idempotency-Key", "f5e5f430")];
    assert_eq!(type_and_key("gitlab", &gitlab, "{}"), found("Push Hook", "f5e5f430"));
}

#[test]
fn without_a_type_the_name_of_the_source_is_the_type_and_without_a_key_there_is_none() {
    for body in ["{}", r#"{"type": null, "id": []}"#, r#"{"type": "", "id": {}}"#, "[]"] {
        assert_eq!(type_and_key("stripe", &[], body), ("fallback".into(), None), "{body}");
    }
    assert_eq!(type_and_key("stripe", &[], r#"{"type": 7.50, "id": true}"#).0, "7.50");
    assert_eq!(type_and_key("stripe", &[], r#"{"type": 7.50, "id": true}"#).1.as_deref(), Some("true"));
    let fixed = source(&json!({
        "name": "a", "verify": {"scheme": "none"}, "event_type_from": {"value": "payment"}, "tags": ["x", "y"],
        "labels": {"from": "shop"},
    }));
    let event = incoming(&fixed, &[JSON], b"1").unwrap();
    assert_eq!((event.event_type.as_deref(), event.title.as_str()), (Some("payment"), "payment"));
    assert_eq!((event.tags.joined(), event.labels["from"].as_str()), ("x,y".into(), "shop"));
}

#[test]
fn a_type_or_a_key_that_cannot_be_stored_is_refused() {
    let stripe = source(&json!({"name": "a", "provider": "stripe", "verify": {"secret": "s"}}));
    let long = "x".repeat(256);
    let key = "k".repeat(limits::NAME_CHARS + 1);
    for (body, field) in [
        (json!({"type": "waybill.test"}), "event_type"),
        (json!({"type": long}), "event_type"),
        (json!({"type": "a\0b"}), "event_type"),
        (json!({"id": key}), "idempotency_key"),
    ] {
        match incoming(&stripe, &[JSON], body.to_string().as_bytes()) {
            Err(InputError::Invalid(errors)) => assert_eq!(names(errors), [field]),
            other => panic!("{other:?}"),
        }
    }
}

fn none() -> SourceSpec {
    source(&json!({"name": "a", "verify": {"scheme": "none"}}))
}

/// Returns the payload and the labels of an event.
fn payload(headers: &[(&str, &str)], body: &[u8]) -> (Option<String>, Value) {
    let event = incoming(&none(), headers, body).unwrap();
    (event.payload.map(|payload| payload.as_str().to_owned()), json!(event.labels))
}

#[test]
fn a_json_body_becomes_the_payload_byte_for_byte() {
    let body = "{\"b\":1.50, \"a\" : [1e2,\"\\u0000\\/\"],\"a\":null}";
    let plain = ("Content-Type", "text/plain");
    let problem = ("Content-Type", "application/vnd.api+JSON");
    for headers in [&[JSON][..], &[problem], &[plain], &[]] {
        let around = format!(" \n{body}\r\n");
        assert_eq!(payload(headers, around.as_bytes()), (Some(body.to_owned()), json!({})), "{headers:?}");
    }
    assert_eq!(payload(&[JSON], b"7").0.as_deref(), Some("7"));
    let deep = [b"[".repeat(129), b"]".repeat(129)].concat();
    assert!(matches!(incoming(&none(), &[JSON], &deep), Err(InputError::Invalid(_))));
}

#[test]
fn any_other_body_becomes_a_string_with_its_type_as_a_label() {
    let form = ("Content-Type", "application/x-www-form-urlencoded");
    let (text, labels) = payload(&[form], b"payload=%7B%7D&b=\"1\"");
    assert_eq!((text.as_deref(), labels), (Some(r#""payload=%7B%7D&b=\"1\"""#), json!({"content_type": form.1})));
    // A form is a string even if it looks like JSON, and so is JSON that is broken.
    assert_eq!(payload(&[form], b"{}").0.as_deref(), Some("\"{}\""));
    assert_eq!(payload(&[JSON], b"{").0.as_deref(), Some("\"{\""));
    assert_eq!(
        payload(&[("Content-Type", "text/plain")], b"7"),
        (Some("\"7\"".into()), json!({"content_type": "text/plain"}))
    );
    assert_eq!(payload(&[], "grüße\0".as_bytes()), (Some("\"grüße\\u0000\"".into()), json!({})));
    assert_eq!(payload(&[form], b""), (None, json!({})));
    let long = format!("text/{}", "x".repeat(500));
    let labels = payload(&[("Content-Type", &long)], b"a").1;
    assert_eq!(labels["content_type"].as_str().unwrap().len(), limits::LABEL_CHARS);
}

#[test]
fn a_body_that_is_not_text_becomes_base64_and_a_label_says_so() {
    let (text, labels) = payload(&[("Content-Type", "image/png")], &[0x89, b'P', 0xff]);
    assert_eq!(text.as_deref(), Some("\"iVD/\""));
    assert_eq!(labels, json!({"content_type": "image/png", "payload_encoding": "base64"}));
}

#[test]
fn a_body_that_grows_beyond_the_largest_payload_is_refused() {
    for body in [vec![1; 200_000], vec![0xff; 800_000]] {
        assert!(matches!(incoming(&none(), &[], &body), Err(InputError::TooLarge { .. })));
    }
}

#[test]
fn only_slack_gets_its_challenge() {
    let body = br#"{"token": "x", "challenge": "3eZbrw1aBm2rZgRNFdxV2595E9CY3gmdALWMmHkvFXO7tYXAYM8P", "type": "url_verification"}"#;
    let of = |provider: &str, body: &[u8]| {
        source(&json!({"name": "a", "provider": provider, "verify": {"secret": "s"}}))
            .challenge(&webhook(&[JSON], body))
    };
    let expected = "3eZbrw1aBm2rZgRNFdxV2595E9CY3gmdALWMmHkvFXO7tYXAYM8P";
    assert_eq!(of("slack", body).as_deref(), Some(expected));
    assert_eq!(of("github", body), None);
    assert_eq!(of("slack", br#"{"challenge": "x", "type": "event_callback"}"#), None);
    let long = json!({"type": "url_verification", "challenge": "x".repeat(1_001)});
    assert_eq!(of("slack", long.to_string().as_bytes()), None);
}
