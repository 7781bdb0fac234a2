use serde_json::{Value, json};

use super::*;

fn invalid_fields(body: &str, take: impl FnOnce(&mut RawFields<'_>)) -> Vec<String> {
    let mut fields = RawFields::of_body(body.as_bytes()).unwrap();
    take(&mut fields);
    match fields.finish() {
        Err(InputError::Invalid(errors)) => errors.into_iter().map(|e| e.field).collect(),
        Err(other) => vec![format!("{other:?}")],
        Ok(()) => vec![],
    }
}

#[test]
fn all_errors_are_reported_at_once() {
    let named = invalid_fields(r#"{"title": 5, "priority": 101, "colour": "red"}"#, |fields| {
        fields.text("title", 255);
        fields.integer("priority", -100..=100i16);
    });
    assert_eq!(named, ["title", "priority", "colour"]);
}

#[test]
fn a_repeated_field_is_refused_and_null_counts_as_absent() {
    assert_eq!(invalid_fields(r#"{"a": 1, "a": 2}"#, |f| assert!(f.take("a").is_some())), ["a"]);
    assert_eq!(invalid_fields(r#"{"a": null}"#, |f| assert!(f.take("a").is_none())), [""; 0]);
}

#[test]
fn remaining_fields_with_a_repeated_name_are_refused_at_any_depth() {
    let twice = |filter: &str| invalid_fields(&format!(r#"{{"filter": {filter}}}"#), |fields| drop(fields.rest()));
    assert_eq!(twice(r#"{"payload.a": {"$gt": 1}, "payload.a": {"$lt": 5}}"#), ["filter.payload.a"]);
    assert_eq!(twice(r#"{"$or": [{}, {"a": {"b": 1, "\u0062": 2}}]}"#), ["filter.$or[1].a.b"]);
    assert_eq!(twice(r#"{"a": {"x": 1}, "b": {"x": 1}, "c": ["\ud800"]}"#), ["filter.c[0]"]);
    assert_eq!(twice(&format!("{}{}", "[".repeat(100_000), "]".repeat(100_000))), ["filter"]);
    let mut fields = RawFields::of_body(br#"{"a": {"b": [1.5, null, {"c": "d"}]}, "e": "f"}"#).unwrap();
    assert_eq!(Value::Object(fields.rest()), json!({"a": {"b": [1.5, null, {"c": "d"}]}, "e": "f"}));
}

#[test]
fn many_fields_and_long_names_do_not_make_a_long_response() {
    let many = |count: usize| format!("{{{}}}", vec!["\"a\":1"; count].join(","));
    assert_eq!(invalid_fields(&many(MAX_FIELDS), |_| {}).len(), MAX_FIELDS);
    assert!(
        matches!(RawFields::of_body(many(MAX_FIELDS + 1).as_bytes()), Err(InputError::Invalid(errors)) if errors.len() == 1)
    );
    assert_eq!(invalid_fields(&format!("{{\"{}\":1}}", "ü".repeat(5000)), |_| {}), ["ü".repeat(SHOWN_CHARS)]);
}

#[test]
fn json_values_are_kept_verbatim() {
    let mut fields = RawFields::of_body(br#" {"p" : {"b":1.0 , "a":[ 1 ]} } "#).unwrap();
    assert_eq!(fields.json("p", 100).unwrap().as_str(), r#"{"b":1.0 , "a":[ 1 ]}"#);
}

#[test]
fn a_body_that_is_not_an_object_is_refused() {
    assert!(matches!(RawFields::of_body(b"[1]"), Err(InputError::Invalid(_))));
    assert!(matches!(RawFields::of_body(b"{"), Err(InputError::Malformed(_))));
    assert!(matches!(RawFields::of_body(b"{\"a\":\"\xff\"}"), Err(InputError::Malformed(_))));
}

#[test]
fn query_parameters_use_json_syntax_for_numbers_and_booleans() {
    let mut query = Fields::new(
        [("limit", "5"), ("after", " 5"), ("since", "2026-01-02T03:04:05 01:00"), ("dry_run", "true"), ("name", "5")]
            .map(|(name, value)| (name.into(), QueryValue(value.into()))),
    );
    assert_eq!(query.integer("limit", 1..=10), Some(5));
    assert_eq!(query.integer("after", 1..=10), None);
    assert_eq!(query.timestamp("since").map(|at| at.to_rfc3339()).as_deref(), Some("2026-01-02T02:04:05+00:00"));
    assert_eq!((query.boolean("dry_run"), query.text("name", 9).as_deref()), (Some(true), Some("5")));
    assert!(matches!(query.finish(), Err(InputError::Invalid(errors)) if errors.len() == 1));
}

#[test]
fn every_invalid_label_is_named() {
    let named = invalid_fields(r#"{"labels": {"a": 1, "b": "x", "b": "y", "": "z", "c": "fine"}}"#, |fields| {
        fields.labels("labels");
    });
    assert_eq!(named, ["labels.a", "labels.b", "labels"]);
    assert_eq!(invalid_fields(r#"{"labels": "a"}"#, |fields| drop(fields.labels("labels"))), ["labels"]);
}

#[test]
fn an_error_says_what_is_expected() {
    let reasons = |body: &str| {
        let mut fields = RawFields::of_body(body.as_bytes()).unwrap();
        fields.labels("labels");
        fields.choice("config", |_| None::<()>, "current, original");
        match fields.finish() {
            Err(InputError::Invalid(errors)) => errors.into_iter().map(|e| e.reason).collect(),
            other => vec![format!("{other:?}")],
        }
    };
    for config in ["5", r#""new""#] {
        assert_eq!(reasons(&format!(r#"{{"config": {config}}}"#)), ["must be one of current, original"]);
    }
    assert_eq!(reasons(r#"{"labels": {"": "x"}}"#), ["must not have a pair with an empty name"]);
    assert_eq!(reasons(r#"{"labels": {"a": "\ud800"}}"#), ["must be a string of valid Unicode"]);
}
