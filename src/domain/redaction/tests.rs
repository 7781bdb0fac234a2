use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::*;

fn redaction(patterns: &[&str]) -> Redaction {
    Redaction::parse(&patterns.iter().map(|pattern| (*pattern).to_owned()).collect::<Vec<_>>()).unwrap()
}

/// Returns a payload as these patterns leave it.
#[track_caller]
fn redacted(patterns: &[&str], payload: &str) -> String {
    assert!(serde_json::from_str::<&serde_json::value::RawValue>(payload).is_ok(), "{payload}");
    let json = RawJson::from_column(payload.to_owned());
    redaction(patterns).redact("payload", &json).unwrap_or(json).as_str().to_owned()
}

#[test]
fn a_pattern_hides_a_field_and_a_star_everything_below() {
    let order = r#"{"id":1,"card":{"number":"4111","expiry":{"month":1}},"card2":{"number":2}}"#;
    let hidden = r#"{"id":1,"card":{"number":"[redacted]","expiry":"[redacted]"},"card2":{"number":2}}"#;
    assert_eq!(redacted(&["payload.card.*"], order), hidden);
    let hidden = r#"{"id":1,"card":"[redacted]","card2":{"number":2}}"#;
    assert_eq!(redacted(&["payload.card"], order), hidden);
    assert_eq!(redacted(&["payload.card", "payload.card.number", "payload.card.*"], order), hidden);
    let hidden = r#"{"id":1,"card":{"number":"[redacted]","expiry":{"month":1}},"card2":{"number":"[redacted]"}}"#;
    assert_eq!(redacted(&["payload.*.number"], order), hidden);
    assert_eq!(redacted(&["payload"], order), r#""[redacted]""#);
    assert_eq!(redacted(&["payload.id.*", "payload.card.number.x", "result.card", "progress"], order), order);
}

#[test]
fn a_star_and_a_number_stand_for_elements_of_lists() {
    let items = r#"{"items":[{"sku":1,"price":2},{"sku":3},[4]],"0":5}"#;
    let hidden = r#"{"items":[{"sku":"[redacted]","price":2},{"sku":"[redacted]"},[4]],"0":5}"#;
    assert_eq!(redacted(&["payload.items.*.sku"], items), hidden);
    let hidden = r#"{"items":[{"sku":1,"price":2},"[redacted]",[4]],"0":"[redacted]"}"#;
    assert_eq!(redacted(&["payload.items.1", "payload.0", "payload.items.01"], items), hidden);
    assert_eq!(redacted(&["payload.items.sku"], items), items, "a list has no names");
    assert_eq!(redacted(&["payload.*"], "[1, [2] ,{}]"), r#"["[redacted]", "[redacted]" ,"[redacted]"]"#);
}

#[test]
fn everything_else_stays_byte_for_byte() {
    let odd = "{ \"big\" : 12345678901234567890123456789.0100e+5 ,\n\t\"a\":1,\"a\" : {\"b\":-0.0},\"\\u0061\":\"\\u0000\\ud83d\\ude00 é\" , \
               \"t\":true, \"n\" :null , \"s\":\"}]\\\"{\" }";
    assert_eq!(redacted(&["payload.x"], odd), odd);
    let hidden = odd.replace("true", "\"[redacted]\"");
    assert_eq!(redacted(&["payload.t"], odd), hidden);
    let hidden = odd.replace("\"a\":1", "\"a\":\"[redacted]\"").replace("{\"b\":-0.0}", "\"[redacted]\"");
    let hidden = hidden.replace("\"\\u0000\\ud83d\\ude00 é\"", "\"[redacted]\"");
    assert_eq!(redacted(&["payload.a"], odd), hidden, "of a repeated name every value, however the name is written");
}

#[test]
fn names_that_are_no_text_are_met_by_a_star_only() {
    let odd = r#"{"\ud800":{"x":1},"":{"x":2},"a.b":{"x":3}}"#;
    assert_eq!(redacted(&["payload.a.b.x"], odd), odd, "a dot divides");
    let hidden = r#"{"\ud800":{"x":"[redacted]"},"":{"x":"[redacted]"},"a.b":{"x":"[redacted]"}}"#;
    assert_eq!(redacted(&["payload.*.x"], odd), hidden);
}

#[test]
fn deep_and_wide_values_cost_no_stack() {
    let deep = format!("{}1{}", "[".repeat(1_000_000), "]".repeat(1_000_000));
    assert_eq!(redacted(&["payload.*.*.x"], &deep).len(), deep.len());
    let longest = vec!["*"; limits::PATH_SEGMENTS - 1].join(".");
    let hidden = redacted(&[&format!("payload.{longest}")], &deep);
    assert_eq!(hidden, format!("{}\"[redacted]\"{}", "[".repeat(15), "]".repeat(15)));
}

#[test]
fn text_that_is_no_json_is_hidden_as_a_whole() {
    for text in
        ["", "{", "{\"a\"", "{\"a\":1", "{\"a\" 1}", "[1", "[1 2]", "\"x", "\"x\\", "{a:1}", "[1]]", "{\"a\":}", "?"]
    {
        let hidden = walk::redact(&redaction(&["payload.a.b"]).patterns, 1, 1, text);
        assert_eq!(hidden.as_deref(), Some("\"[redacted]\""), "{text}");
    }
}

#[test]
fn the_fields_of_an_event_are_redacted_inside_it() {
    let event =
        RawJson::from_column(r#"{"id":1,"payload":{"card":1,"payload":{"card":2}},"labels":{"card":3}}"#.into());
    let hidden = redaction(&["payload.card", "result.card"]).redact_event(&event).unwrap();
    assert_eq!(hidden.as_str(), r#"{"id":1,"payload":{"card":"[redacted]","payload":{"card":2}},"labels":{"card":3}}"#);
    assert_eq!(redaction(&["progress.card"]).redact_event(&event), None);
    assert_eq!(Redaction::default().redact_event(&event), None);
}

#[test]
fn patterns_have_limits() {
    let parse = |pattern: &str| Redaction::parse(&[pattern.to_owned()]);
    let bad = [
        "",
        ".",
        "*",
        "*.card",
        "labels.card",
        "title",
        "Payload.card",
        " payload.card",
        "payload.",
        ".payload",
        "payload..card",
        "payload.c*",
        "payload.**",
        "payload.card.*x",
        "payload.a\0b",
        &format!("payload.{}", "x".repeat(248)),
        &vec!["payload"; 17].join("."),
    ];
    for pattern in bad {
        assert!(parse(pattern).is_err(), "{pattern:?}");
    }
    for good in ["payload", "payload.*", "result.a b", "progress.ä", &vec!["payload"; 16].join(".")] {
        assert!(parse(good).is_ok(), "{good:?}");
    }
    let many: Vec<String> = (0..=limits::REDACT_PATTERNS).map(|number| format!("payload.{number}")).collect();
    assert!(Redaction::parse(&many).is_err());
    assert!(Redaction::parse(&many[1..]).is_ok());
}

#[test]
fn what_this_version_cannot_read_hides_everything() {
    let redaction = Redaction::stored(&["payload[?(@.card)]".to_owned()]);
    for field in FIELDS {
        let hidden = redaction.redact(field, &RawJson::from_column("1".into())).unwrap();
        assert_eq!(hidden.as_str(), "\"[redacted]\"");
    }
}

#[test]
fn a_path_must_not_be_learned_if_it_meets_a_pattern() {
    let redaction = redaction(&["payload.card.*", "payload.items.*.price", "result.token"]);
    for (path, expected) in [
        ("payload.card.number", true),
        ("payload.card.expiry.month", true),
        ("payload.card", true),
        ("payload", true),
        ("payload.items.0.price", true),
        ("payload.items.0", true),
        ("payload.items.0.sku", false),
        ("payload.id", false),
        ("payload.cards", false),
        ("result.token", true),
        ("result.status", false),
        ("progress", false),
    ] {
        assert_eq!(redaction.is_redacted(path), expected, "{path}");
    }
    assert!(!Redaction::default().is_redacted("payload"));
    assert!(Redaction::everything().is_redacted("payload.x"));
}

/// Returns a value as patterns leave it, by the plainest means.
fn expected(patterns: &[Vec<String>], path: &mut Vec<String>, value: &Value) -> Value {
    let is_path = |parts: &Vec<String>| {
        parts.len() == path.len() && parts.iter().zip(path.iter()).all(|(part, key)| part == "*" || part == key)
    };
    if patterns.iter().any(is_path) {
        return json!(REDACTED);
    }
    let mut below = |key: String, value: &Value| {
        path.push(key);
        let value = expected(patterns, path, value);
        path.pop();
        value
    };
    match value {
        Value::Object(fields) => {
            let fields = fields.iter().map(|(key, value)| (key.clone(), below(key.clone(), value)));
            Value::Object(fields.collect::<Map<_, _>>())
        }
        Value::Array(items) => {
            Value::Array(items.iter().enumerate().map(|(index, value)| below(index.to_string(), value)).collect())
        }
        other => other.clone(),
    }
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[\\PC\"\\\\]{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 60, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::vec(("[abc0\"]|\\PC{0,2}", inner), 0..5)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

fn any_pattern() -> impl Strategy<Value = String> {
    prop::collection::vec("[abc012*]", 0..4)
        .prop_map(|parts| std::iter::once("payload".to_owned()).chain(parts).collect::<Vec<_>>().join("."))
}

proptest! {
    #[test]
    fn only_what_patterns_match_changes(
        value in any_json(),
        patterns in prop::collection::vec(any_pattern(), 0..6),
        is_pretty in any::<bool>(),
    ) {
        let write = |value: &Value| match is_pretty {
            true => serde_json::to_string_pretty(value).unwrap(),
            false => value.to_string(),
        };
        let redaction = Redaction::parse(&patterns).unwrap();
        let json = RawJson::from_column(write(&value));
        let found = redaction.redact("payload", &json).unwrap_or(json);
        let expected = expected(&redaction.patterns, &mut vec!["payload".to_owned()], &value);
        prop_assert_eq!(found.as_str(), write(&expected));
    }

    #[test]
    fn any_text_is_survived(text in "[\\[\\]{}\",:\\\\a1 ]{0,40}") {
        let hidden = walk::redact(&[vec!["payload".into(), "a".into()]], 1, 1, &text);
        if let (Some(hidden), Ok(_)) = (&hidden, serde_json::from_str::<Value>(&text)) {
            prop_assert!(serde_json::from_str::<Value>(hidden).is_ok());
        }
    }
}
