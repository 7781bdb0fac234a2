//! Tests: what transforms render, and which transforms are refused.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

const PAYLOAD: &str = r#"{"b":1.0 , "a":[ 1 ], "user":{"id":7,"mail":"a@b"}}"#;

/// Generates JSON with few distinct names, so that random paths often match.
pub(super) fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![Just(Value::Null), any::<i32>().prop_map(Value::from), "\\PC{0,3}".prop_map(Value::from)];
    leaf.prop_recursive(4, 30, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[ab01]", inner, 0..4)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

fn render_with(payload: &str, transform: Value) -> Result<Rendered, String> {
    let labels = BTreeMap::from([("region".to_owned(), "eu".to_owned())]);
    let input = TransformInput {
        webhook_id: "msg_1",
        event_id: Some(EventId(7)),
        event_type: Some("order.paid"),
        title: "An order",
        created_at: "2026-03-01T12:00:00Z".parse().unwrap(),
        tags: &["a".to_owned()],
        labels: &labels,
        payload,
        correlation_id: None,
        ordering_key: Some("user 7"),
        source: "/waybill",
    };
    let transform = (!transform.is_null()).then(|| Transform::parse(&transform).unwrap());
    render(transform.as_ref(), &input)
}

fn rendered(transform: Value) -> Rendered {
    render_with(PAYLOAD, transform).unwrap()
}

fn body(rendered: &Rendered) -> &str {
    std::str::from_utf8(&rendered.body).unwrap()
}

fn invalid_field(transform: Value) -> String {
    Transform::parse(&transform).unwrap_err().field
}

#[test]
fn without_a_transform_the_payload_is_sent_byte_for_byte() {
    let plain = rendered(json!(null));
    assert_eq!(body(&plain), PAYLOAD);
    assert_eq!(plain.content_type, "application/json");
    assert!(plain.headers.is_empty());
}

#[test]
fn fields_are_selected_before_the_shape_is_given() {
    assert_eq!(body(&rendered(json!({"keep": ["user"], "drop": ["user.mail"]}))), r#"{"user":{"id":7}}"#);
    let enveloped = rendered(json!({"keep": ["b"], "envelope": true}));
    assert!(body(&enveloped).ends_with(r#""payload":{"b":1.0}}"#), "{}", body(&enveloped));
    let from_template = rendered(
        json!({"drop": ["user"], "template": "{{ payload.user is defined|string }}", "content_type": "text/plain"}),
    );
    assert_eq!(body(&from_template), "false");
}

#[test]
fn an_envelope_holds_the_payload_verbatim() {
    let expected = format!(
        r#"{{"webhook_id":"msg_1","event_id":7,"event_type":"order.paid","created_at":"2026-03-01T12:00:00.000000Z","labels":{{"region":"eu"}},"payload":{PAYLOAD}}}"#
    );
    assert_eq!(body(&rendered(json!({"envelope": true}))), expected);
}

#[test]
fn a_structured_cloudevent_is_one_document() {
    let event = rendered(json!({"cloudevents": "structured"}));
    assert_eq!(event.content_type, "application/cloudevents+json");
    assert!(body(&event).ends_with(&format!(r#""data":{PAYLOAD}}}"#)));
    let mut fields: Value = serde_json::from_slice(&event.body).unwrap();
    fields.as_object_mut().unwrap().remove("data");
    let expected = json!({
        "specversion": "1.0", "id": "msg_1", "source": "/waybill", "type": "order.paid",
        "time": "2026-03-01T12:00:00.000000Z", "partitionkey": "user 7", "datacontenttype": "application/json",
    });
    assert_eq!(fields, expected);
}

#[test]
fn a_binary_cloudevent_is_the_payload_with_headers() {
    let event = rendered(json!({"cloudevents": "binary"}));
    assert_eq!((body(&event), event.content_type.as_str()), (PAYLOAD, "application/json"));
    let header = |name: &str| event.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
    assert_eq!(header("ce-type"), Some("order.paid"));
    assert_eq!(header("ce-partitionkey"), Some("user%207"));
    assert_eq!(event.headers.len(), 6);
    assert_eq!(header("ce-datacontenttype"), None);
}

#[test]
fn cloudevents_gives_a_type_to_an_event_without_one() {
    let labels = BTreeMap::new();
    let input = TransformInput {
        webhook_id: "msg_1",
        event_id: Some(EventId(7)),
        event_type: None,
        title: "",
        created_at: DateTime::UNIX_EPOCH,
        tags: &[],
        labels: &labels,
        payload: "null",
        correlation_id: None,
        ordering_key: None,
        source: "/",
    };
    let transform = Transform::parse(&json!({"cloudevents": "structured"})).unwrap();
    let event: Value = serde_json::from_slice(&render(Some(&transform), &input).unwrap().body).unwrap();
    assert_eq!((&event["type"], &event["data"]), (&json!("waybill.event"), &Value::Null));
    assert!(event.get("partitionkey").is_none());
}

#[test]
fn invalid_transforms_are_refused() {
    for (bad, field) in [
        (json!({}), ""),
        (json!("envelope"), ""),
        (json!({"envelope": false}), ""),
        (json!({"envelope": true, "cloudevents": "binary"}), ""),
        (json!({"envelope": 1}), "envelope"),
        (json!({"cloudevents": "batch"}), "cloudevents"),
        (json!({"cloudevents": 1}), "cloudevents"),
        (json!({"keep": []}), "keep"),
        (json!({"keep": ["a", "b."]}), "keep[1]"),
        (json!({"drop": "a"}), "drop"),
        (json!({"drop": vec!["a"; 101]}), "drop"),
        (json!({"template": 5}), "template"),
        (json!({"content_type": "text/plain"}), "content_type"),
        (json!({"template": "x", "content_type": "text/plain\r\nHost: x"}), "content_type"),
        (json!({"template": "x", "content_type": "plain"}), "content_type"),
        (json!({"jsonnet": "x"}), "jsonnet"),
    ] {
        assert_eq!(invalid_field(bad.clone()), field, "{bad}");
    }
}

#[test]
fn a_transform_survives_serialisation() {
    for transform in [
        json!({"keep": ["a.b", "c"], "drop": ["a.b.d"]}),
        json!({"envelope": true}),
        json!({"cloudevents": "structured", "drop": ["x"]}),
        json!({"template": "{{ webhook_id }}"}),
        json!({"template": "{{ webhook_id }}", "content_type": "text/plain"}),
    ] {
        let parsed = Transform::parse(&transform).unwrap();
        assert_eq!(Transform::parse(&parsed.to_json()), Ok(parsed), "{transform}");
    }
}

proptest! {
    #[test]
    fn every_shape_is_valid_json_for_any_payload(payload in any_json(), structured in any::<bool>()) {
        let transform = if structured { json!({"cloudevents": "structured"}) } else { json!({"envelope": true}) };
        let whole = render_with(&payload.to_string(), transform).unwrap();
        let whole: Value = serde_json::from_slice(&whole.body).unwrap();
        prop_assert_eq!(&whole[if structured { "data" } else { "payload" }], &payload);
    }
}
