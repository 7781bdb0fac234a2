//! Closes the schemas of the document. They are open, so that responses can gain fields; a field that is
//! not documented is a mistake all the same.

use serde_json::{Map, Value, json};

const SCHEMAS: &str = "#/components/schemas/";

/// Returns the document with closed schemas: no object may have a property that is not documented. A
/// schema that extends others by `allOf` is closed as a whole, so `open` has a copy of each schema that is
/// closed only below its own level.
pub(super) fn closed(root: &Value) -> Value {
    let schemas = root["components"]["schemas"].as_object().expect("schemas");
    let all = |is_part| -> Map<String, Value> {
        schemas.iter().map(|(name, schema)| (name.clone(), close(schema, is_part))).collect()
    };
    let mut document = root.clone();
    document["components"]["schemas"] = all(false).into();
    document["components"]["open"] = all(true).into();
    document
}

/// Closes a schema. `is_part` says whether it is part of an `allOf`.
fn close(schema: &Value, is_part: bool) -> Value {
    let Some(members) = schema.as_object() else { return schema.clone() };
    let mut closed: Map<String, Value> = Map::new();
    for (name, value) in members {
        let value = match (name.as_str(), value) {
            ("$ref", Value::String(target)) if is_part => target.replace(SCHEMAS, "#/components/open/").into(),
            ("properties", Value::Object(properties)) => {
                properties.iter().map(|(name, schema)| (name.clone(), close(schema, false))).collect()
            }
            ("items" | "additionalProperties", schema) => close(schema, false),
            ("oneOf", Value::Array(choices)) => choices.iter().map(|schema| close(schema, false)).collect(),
            ("allOf", Value::Array(parts)) => parts.iter().map(|schema| close(schema, true)).collect(),
            _ => value.clone(),
        };
        closed.insert(name.clone(), value);
    }
    let is_object = members.contains_key("properties") || members.contains_key("allOf");
    if is_object && !is_part && !members.contains_key("additionalProperties") {
        closed.insert("unevaluatedProperties".into(), false.into());
    }
    closed.into()
}

#[test]
fn a_field_that_is_not_documented_is_found_at_every_level() {
    let schemas = json!({
        "Base": {"type": "object", "properties": {"inner": {"$ref": "#/components/schemas/Inner"}}},
        "Inner": {"type": "object", "properties": {"a": {}}},
        "Whole": {"allOf": [{"$ref": "#/components/schemas/Base"}, {"type": "object", "properties": {"b": {}}}]},
    });
    let mut document = closed(&json!({"components": {"schemas": schemas}}));
    document["$ref"] = "#/components/schemas/Whole".into();
    let validator = jsonschema::draft202012::new(&document).expect("a schema");
    assert!(validator.is_valid(&json!({"inner": {"a": 1}, "b": 2})));
    assert!(!validator.is_valid(&json!({"inner": {"a": 1}, "b": 2, "c": 3})));
    assert!(!validator.is_valid(&json!({"inner": {"a": 1, "c": 3}, "b": 2})));
}
