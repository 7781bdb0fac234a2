use super::*;

fn complaints(body: &str, take: impl FnOnce(&mut Fields<'_>)) -> Vec<String> {
    let mut fields = Fields::of_body(body.as_bytes()).unwrap();
    take(&mut fields);
    match fields.finish() {
        Err(Error::Invalid(errors)) => errors.into_iter().map(|e| e.field).collect(),
        Err(other) => vec![other.to_string()],
        Ok(()) => vec![],
    }
}

#[test]
fn every_mistake_is_named_at_once() {
    let named = complaints(r#"{"title": 5, "priority": 101, "colour": "red"}"#, |fields| {
        fields.text("title", 255);
        fields.integer("priority", -100..=100i16);
    });
    assert_eq!(named, ["title", "priority", "colour"]);
}

#[test]
fn a_field_given_twice_is_refused_and_null_means_left_out() {
    assert_eq!(complaints(r#"{"a": 1, "a": 2}"#, |f| assert!(f.raw("a").is_some())), ["a"]);
    assert_eq!(complaints(r#"{"a": null}"#, |f| assert!(f.raw("a").is_none())), [""; 0]);
}

#[test]
fn what_is_read_by_others_has_no_name_twice_at_any_depth() {
    let twice = |rest: &str| complaints(&format!(r#"{{"filter": {rest}}}"#), |fields| drop(fields.rest()));
    assert_eq!(twice(r#"{"payload.a": {"$gt": 1}, "payload.a": {"$lt": 5}}"#), ["filter.payload.a"]);
    assert_eq!(twice(r#"{"$or": [{}, {"a": {"b": 1, "\u0062": 2}}]}"#), ["filter.$or[1].a.b"]);
    assert_eq!(twice(r#"{"a": {"x": 1}, "b": {"x": 1}, "c": ["\ud800"]}"#), ["filter.c[0]"]);
    assert_eq!(twice(&format!("{}{}", "[".repeat(100_000), "]".repeat(100_000))), ["filter"]);
    let mut fields = Fields::of_body(br#"{"a": {"b": [1.5, null, {"c": "d"}]}, "e": "f"}"#).unwrap();
    assert_eq!(Value::Object(fields.rest()), serde_json::json!({"a": {"b": [1.5, null, {"c": "d"}]}, "e": "f"}));
}

#[test]
fn neither_many_fields_nor_long_names_make_a_long_answer() {
    let many = |count: usize| format!("{{{}}}", vec!["\"a\":1"; count].join(","));
    assert_eq!(complaints(&many(MOST_FIELDS), |_| {}).len(), MOST_FIELDS);
    assert!(
        matches!(Fields::of_body(many(MOST_FIELDS + 1).as_bytes()), Err(Error::Invalid(errors)) if errors.len() == 1)
    );
    assert_eq!(complaints(&format!("{{\"{}\":1}}", "ü".repeat(5000)), |_| {}), ["ü".repeat(SHOWN_CHARS)]);
}

#[test]
fn values_come_out_verbatim() {
    let mut fields = Fields::of_body(br#" {"p" : {"b":1.0 , "a":[ 1 ]} } "#).unwrap();
    assert_eq!(fields.json("p", 100).unwrap().as_str(), r#"{"b":1.0 , "a":[ 1 ]}"#);
}

#[test]
fn what_is_no_object_is_refused() {
    assert!(matches!(Fields::of_body(b"[1]"), Err(Error::Invalid(_))));
    assert!(matches!(Fields::of_body(b"{"), Err(Error::MalformedJson(_))));
    assert!(matches!(Fields::of_body(b"{\"a\":\"\xff\"}"), Err(Error::MalformedJson(_))));
}
