//! Hostile schemas and payloads: every limit is a number of parts or steps, and never a time.

use serde_json::{Map, Value, json};

use super::{EventSchema, Explainer, OutOfSteps, Steps};
use crate::domain::invalid::Invalid;
use crate::domain::limits;

/// The steps that ordinary payloads get here: far fewer than those of a request.
const FEW: u64 = 20_000;

/// The steps that explanations get here.
const ENOUGH: u64 = 1_000_000;

/// Runs a test on a stack like that of the threads on which large payloads are checked.
fn on_deep_stack(test: impl FnOnce() + Send + 'static) {
    let thread = std::thread::Builder::new().stack_size(super::DEEP_STACK_BYTES).spawn(test).expect("a thread");
    thread.join().expect("no panic");
}

#[track_caller]
fn parse(schema: &Value) -> EventSchema {
    EventSchema::parse(schema).unwrap_or_else(|errors| panic!("{schema}: {errors:?}"))
}

#[track_caller]
fn refused(schema: &Value) -> (String, String) {
    let Invalid { field, reason } = EventSchema::parse(schema).expect_err("a refusal").swap_remove(0);
    (field, reason)
}

fn check(schema: &Value, payload: &Value) -> Result<bool, OutOfSteps> {
    parse(schema).check(payload, &mut Steps::of(FEW))
}

fn mistakes(schema: &Value, payload: &Value) -> Vec<(String, String)> {
    let schema = parse(schema);
    assert_eq!(schema.check(payload, &mut Steps::of(FEW)), Ok(false), "{payload}");
    let mistakes = Explainer::new(&schema).explain(payload, &mut Steps::of(ENOUGH));
    let fields = mistakes.iter().map(|mistake| mistake.for_publisher("payload"));
    fields.map(|Invalid { field, reason }| (field, reason)).collect()
}

/// A value inside `depth` objects, each with one member `a`.
fn nested(depth: usize, leaf: Value) -> Value {
    (0..depth).fold(leaf, |value, _| json!({"a": value}))
}

/// Definitions `d0` to `d<count>`, of which each names the next one twice, by `keyword`.
fn doubling_definitions(count: usize, keyword: &str) -> Map<String, Value> {
    let mut definitions: Map<String, Value> = (0..count)
        .map(|n| {
            let next = json!({"$ref": format!("#/$defs/d{}", n + 1)});
            (format!("d{n}"), json!({keyword: [next, next]}))
        })
        .collect();
    definitions.insert(format!("d{count}"), json!({"type": "string"}));
    definitions
}

#[test]
fn an_ordinary_schema_accepts_and_refuses() {
    let schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "https://shop.example/order",
        "type": "object",
        "required": ["id", "lines"],
        "properties": {
            "id": {"type": "integer", "minimum": 1},
            "email": {"type": "string", "pattern": "^[^@]+@[^@]+$", "maxLength": 100},
            "lines": {"type": "array", "items": {"$ref": "#/$defs/line"}, "uniqueItems": true, "minItems": 1},
            "notes": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        },
        "additionalProperties": false,
        "$defs": {"line": {"$anchor": "line", "type": "object", "required": ["sku"], "properties": {"sku": {"type": "string"}}}},
    });
    let good = json!({"id": 7, "email": "a@b.example", "lines": [{"sku": "x"}], "notes": null});
    assert_eq!(check(&schema, &good), Ok(true));
    let bad = json!({"id": 0, "email": "nobody", "lines": [{"sku": "x"}, {"sku": 1}, {}], "notes": 7, "other": 1});
    let expected = [
        ("payload.email", "does not satisfy pattern: \"^[^@]+@[^@]+$\""),
        ("payload.id", "does not satisfy minimum: 1"),
        ("payload.lines[1].sku", "does not satisfy type: \"string\""),
        ("payload.lines[2].sku", "is required"),
        ("payload.notes", "does not satisfy anyOf"),
        ("payload.other", "is not allowed by the schema"),
    ];
    assert_eq!(mistakes(&schema, &bad), expected.map(|(field, reason)| (field.into(), reason.into())));
    assert_eq!(mistakes(&schema, &json!([])), [("payload".into(), "does not satisfy type: \"object\"".into())]);
}

#[test]
fn every_kind_of_rule_is_named() {
    let one = |schema: Value, payload: Value| mistakes(&schema, &payload).swap_remove(0);
    let cases = [
        (json!({"enum": [1, 2]}), json!(3), "payload", "does not satisfy enum: [1,2]"),
        (json!({"const": {"a": 1}}), json!(3), "payload", "does not satisfy const: {\"a\":1}"),
        (json!({"not": {"type": "string"}}), json!("x"), "payload", "does not satisfy not"),
        (json!({"oneOf": [{}, {}]}), json!("x"), "payload", "does not satisfy oneOf"),
        (json!({"contains": {"const": 1}}), json!([2]), "payload", "does not satisfy contains"),
        (json!({"if": {"type": "string"}, "then": {"minLength": 2}}), json!("x"), "payload", "does not satisfy then"),
        (json!({"propertyNames": {"maxLength": 1}}), json!({"ab": 1}), "payload", "does not satisfy propertyNames"),
        (json!({"unevaluatedProperties": false}), json!({"a": 1}), "payload", "does not satisfy unevaluatedProperties"),
        (
            json!({"patternProperties": {"^x": {"type": "null"}}}),
            json!({"x1": 1, "y": 1}),
            "payload.x1",
            "does not satisfy type: \"null\"",
        ),
        (
            json!({"prefixItems": [{"type": "null"}], "items": false}),
            json!([null, 1]),
            "payload[1]",
            "is not allowed by the schema",
        ),
        (
            json!({"allOf": [{"properties": {"a": {"$ref": "#/$defs/n"}}}], "$defs": {"n": {"type": "null"}}}),
            json!({"a": 1}),
            "payload.a",
            "does not satisfy type: \"null\"",
        ),
    ];
    for (schema, payload, field, reason) in cases {
        assert_eq!(one(schema, payload), (field.to_owned(), reason.to_owned()));
    }
}

#[test]
fn names_that_are_not_in_the_schema_are_hidden_from_strangers() {
    let schema =
        json!({"properties": {"customers": {"additionalProperties": {"properties": {"age": {"type": "integer"}}}}}});
    let schema = parse(&schema);
    let payload = json!({"customers": {"jane@shop.example": {"age": "secret"}}});
    let mistakes = Explainer::new(&schema).explain(&payload, &mut Steps::of(ENOUGH));
    assert_eq!(mistakes[0].for_publisher("payload").field, "payload.customers.jane@shop.example.age");
    assert_eq!(mistakes[0].for_stranger().field, "payload.customers.*.age");
    assert!(!format!("{:?}", mistakes[0].for_stranger()).contains("secret"));
}

#[test]
fn references_stay_inside_the_document() {
    for reference in [
        "http://127.0.0.1:1/a",
        "https://shop.example/a#/b",
        "file:///etc/passwd",
        "other.json",
        "//a/b",
        "#/nowhere",
        "#nobody",
        "#/$defs/%ff",
        "urn:waybill:schema#",
    ] {
        let (field, reason) = refused(&json!({"properties": {"a": {"$ref": reference}}}));
        assert_eq!(field, "properties.a.$ref", "{reference}");
        assert!(reason.contains("of this document"), "{reference}: {reason}");
    }
    let escaped = json!({"$defs": {"a/b~c d": {"type": "null"}}, "$ref": "#/$defs/a~1b~0c%20d"});
    assert_eq!((check(&escaped, &json!(null)), check(&escaped, &json!(1))), (Ok(true), Ok(false)));
    let boolean = json!({"if": true, "then": true, "items": {"$ref": "#/then"}, "contains": {"$ref": "#/$defs/no"}, "$defs": {"no": false}});
    assert_eq!((check(&boolean, &json!([])), check(&boolean, &json!({}))), (Ok(false), Ok(true)));
    let anchored = json!({"$defs": {"a": {"$anchor": "here", "type": "null"}}, "items": {"$ref": "#here"}});
    assert_eq!((check(&anchored, &json!([null])), check(&anchored, &json!([1]))), (Ok(true), Ok(false)));
}

#[test]
fn other_dialects_and_what_is_not_supported_are_refused_by_name() {
    for (schema, field) in [
        (json!({"$schema": "http://json-schema.org/draft-07/schema#"}), "$schema"),
        (
            json!({"properties": {"a": {"$schema": "https://json-schema.org/draft/2020-12/schema"}}}),
            "properties.a.$schema",
        ),
        (json!({"$defs": {"a": {"$id": "https://a.example"}}}), "$defs.a.$id"),
        (json!({"$dynamicRef": "#a"}), "$dynamicRef"),
        (json!({"items": {"$dynamicAnchor": "a"}}), "items.$dynamicAnchor"),
        (json!({"dependencies": {"a": ["b"]}}), "dependencies"),
        (json!({"items": [{}]}), "items"),
        (json!({"type": "strin"}), "type"),
        (json!({"minimum": "a"}), "minimum"),
        (json!({"allOf": {}}), "allOf"),
        (json!({"properties": {"a": 1}}), "properties.a"),
        (json!(true), ""),
        (json!("x"), ""),
    ] {
        assert_eq!(refused(&schema).0, field, "{schema}");
    }
}

#[test]
fn patterns_that_need_backtracking_are_refused_by_name() {
    for pattern in ["(?=a)b", "(a)\\1", "(?<!a)b", "(", "[", "^\\p{L}{1,1000}$", "(?:(?:a{100}){100}){100}"] {
        assert_eq!(refused(&json!({"properties": {"a": {"pattern": pattern}}})).0, "properties.a.pattern", "{pattern}");
        let (field, reason) = refused(&json!({"patternProperties": {pattern: {}}}));
        assert_eq!(field, format!("patternProperties.{pattern}"));
        assert!(reason.contains("linear"), "{reason}");
    }
    let many: Map<String, Value> = (0..=limits::SCHEMA_PATTERNS).map(|n| (format!("^x{n}$"), json!({}))).collect();
    assert!(refused(&json!({"patternProperties": many})).1.contains("too many"));
    let large: Map<String, Value> = (0..10).map(|n| (format!("^.{{1,{}}}$", 250 + n), json!({}))).collect();
    assert!(refused(&json!({"patternProperties": large})).1.contains("too much"));
}

#[test]
fn a_schema_that_never_ends_is_refused() {
    for schema in [
        json!({"$ref": "#"}),
        json!({"allOf": [{"anyOf": [{"$ref": "#"}]}]}),
        json!({"$ref": "#/$defs/a", "$defs": {"a": {"not": {"$ref": "#/$defs/b"}}, "b": {"if": {"$ref": "#/$defs/a"}}}}),
        json!({"properties": {"a": {"dependentSchemas": {"b": {"$ref": "#/properties/a"}}}}}),
    ] {
        assert!(refused(&schema).1.contains("never ends"), "{schema}");
    }
}

#[test]
fn references_that_multiply_are_refused() {
    for keyword in ["allOf", "anyOf", "oneOf"] {
        let laughs = json!({"$ref": "#/$defs/d0", "$defs": doubling_definitions(14, keyword)});
        assert!(refused(&laughs).1.contains("at most"), "{keyword}");
        let few = json!({"$ref": "#/$defs/d0", "$defs": doubling_definitions(7, "allOf")});
        assert_eq!((check(&few, &json!("x")), check(&few, &json!(1))), (Ok(true), Ok(false)));
    }
    let chain = (0..limits::SCHEMA_CHAIN).fold(json!({"type": "string"}), |inner, _| json!({"allOf": [inner]}));
    assert!(refused(&chain).1.contains("inside each other"));
    let unevaluated: Map<String, Value> =
        (0..60).map(|n| (format!("p{n}"), json!({"$ref": "#/$defs/d0", "unevaluatedProperties": false}))).collect();
    let unevaluated = json!({"properties": unevaluated, "$defs": doubling_definitions(6, "allOf")});
    assert!(refused(&unevaluated).1.contains("unevaluated"));
}

#[test]
fn a_recursive_schema_takes_any_payload_that_may_be_published() {
    on_deep_stack(|| {
        let tree = json!({"type": ["object", "integer"], "properties": {"a": {"$ref": "#"}}});
        assert_eq!(check(&tree, &nested(126, json!(1))), Ok(true));
        let mistakes = mistakes(&tree, &nested(126, json!("x")));
        assert!(mistakes[0].0.starts_with("payload.a.a.a"), "{mistakes:?}");
        // The longest chain of parts at each level, each as deep in frames as it can be.
        let links = limits::SCHEMA_CHAIN - 2;
        let chain = (0..links)
            .fold(json!({"properties": {"a": {"$ref": "#"}}}), |inner, _| json!({"anyOf": [{"type": "null"}, inner]}));
        assert_eq!(check(&chain, &nested(126, json!(null))), Ok(true));
    });
}

#[test]
fn payloads_that_make_a_schema_exponential_run_out_of_steps() {
    on_deep_stack(|| {
        let branches = |n: usize| json!({"required": [format!("b{n}")], "properties": {"a": {"$ref": "#"}}});
        for keyword in ["anyOf", "oneOf"] {
            let schema = json!({"type": "object", keyword: [{"minProperties": 2, "properties": {"a": {"$ref": "#"}}}, branches(1), branches(2), {"properties": {"a": {"$ref": "#"}}}]});
            // Whatever the answer is, it takes no more than the steps that there are.
            let _ = check(&schema, &nested(126, json!(1)));
        }
        let unevaluated = json!({
            "anyOf": [{"properties": {"a": {"$ref": "#"}}}, {"properties": {"a": {"$ref": "#"}, "b": {}}}, {"minProperties": 9}],
            "unevaluatedProperties": false,
        });
        let _ = check(&unevaluated, &nested(126, json!({"c": 1})));
        // Each definition applies the next one twice to the member of its value: 2^40 times in all.
        let mut definitions: Map<String, Value> = (0..40)
            .map(|n| {
                let next = json!({"$ref": format!("#/$defs/d{}", n + 1)});
                (format!("d{n}"), json!({"properties": {"a": {"allOf": [next, next]}}}))
            })
            .collect();
        definitions.insert("d40".into(), json!({"type": "integer"}));
        let doubling = json!({"$ref": "#/$defs/d0", "$defs": definitions});
        assert_eq!(check(&doubling, &nested(40, json!(1))), Err(OutOfSteps));
        assert_eq!(check(&doubling, &nested(40, json!("x"))), Ok(false), "the first of the branches decides");
        assert_eq!(check(&doubling, &nested(5, json!(1))), Ok(true));
        // The same, where every branch must be tried before the value is refused.
        let alternatives = doubling.to_string().replace("allOf", "anyOf");
        let alternatives: Value = serde_json::from_str(&alternatives).expect("JSON");
        assert_eq!(check(&alternatives, &nested(40, json!("x"))), Err(OutOfSteps));
        // Nor may the explanation take longer.
        let schema = parse(&doubling);
        let mut steps = Steps::of(ENOUGH);
        assert!(!Explainer::new(&schema).explain(&nested(40, json!(1)), &mut steps).is_empty());
        assert!(steps.are_used_up());
    });
}

#[test]
fn payloads_that_are_merely_costly_run_out_of_steps() {
    let numbers: Value = (0..10_000).collect::<Vec<_>>().into();
    let wide: Map<String, Value> = (0..5_000).map(|n| (format!("name{n}"), json!(n))).collect();
    let wide = Value::Object(wide);
    let long = Value::from("ab".repeat(50_000));
    let maxima: Vec<Value> = (0..100).map(|n| json!({"maximum": n})).collect();
    let names: Map<String, Value> = (0..50).map(|n| (format!("^(?:a|b)*{n}$"), json!({}))).collect();
    let items: Vec<String> = (0..5_000).map(|n| format!("item {n}")).collect();
    for (schema, payload) in [
        (json!({"items": {"anyOf": maxima}}), json!(vec![99; 1_000])),
        (json!({"items": {"enum": items}}), json!((0..10).map(|_| "item 4999").collect::<Vec<_>>())),
        (json!({"items": {"not": {"required": items}}}), json!((0..100).map(|_| json!({})).collect::<Vec<_>>())),
        (json!({"patternProperties": names}), wide.clone()),
        (json!({"not": {"pattern": "(?:a|b)*a(?:a|b){300}c"}}), long),
        (json!({"uniqueItems": true}), numbers.clone()),
        (
            json!({"allOf": [{"items": {"type": "integer"}}, {"items": {"type": "integer"}}, {"items": {"type": "integer"}}]}),
            numbers,
        ),
        (
            json!({"properties": {"a": {}}, "allOf": [{"additionalProperties": {}}, {"propertyNames": {}}, {"minProperties": 1, "additionalProperties": {"type": "integer"}}]}),
            wide,
        ),
    ] {
        let keywords: Vec<&String> = schema.as_object().into_iter().flat_map(Map::keys).collect();
        assert_eq!(check(&schema, &payload), Err(OutOfSteps), "{keywords:?}");
        assert_eq!(parse(&schema).check(&payload, &mut Steps::of(100_000_000)), Ok(true), "{keywords:?}");
    }
}

#[test]
fn steps_are_shared_by_the_payloads_of_a_request() {
    let schema = parse(&json!({"items": {"type": "integer"}}));
    let payload: Value = (0..1_000).collect::<Vec<_>>().into();
    let mut steps = Steps::of(2_500);
    assert_eq!(schema.check(&payload, &mut steps), Ok(true));
    assert_eq!(schema.check(&payload, &mut steps), Ok(true));
    assert_eq!(schema.check(&payload, &mut steps), Err(OutOfSteps));
    assert!(steps.are_used_up());
    assert_eq!(schema.check(&json!(1), &mut steps), Err(OutOfSteps), "nothing is left");
}

#[test]
fn mistakes_are_few_and_short_however_many_there_are() {
    let name = "x".repeat(100_000);
    let schema = json!({"properties": {name.as_str(): {"items": {"anyOf": [{"type": "string"}, {"type": "array"}]}}}});
    let payload = json!({name.as_str(): (0..1_000).collect::<Vec<_>>()});
    let schema = parse(&schema);
    let mistakes = Explainer::new(&schema).explain(&payload, &mut Steps::of(ENOUGH));
    assert_eq!(mistakes.len(), limits::PAYLOAD_ERRORS);
    for mistake in mistakes {
        let Invalid { field, reason } = mistake.for_publisher("payload");
        assert!(field.len() < 1_000 && reason.len() < 1_000, "{field}");
    }
    let unexplained = Explainer::new(&schema).explain(&payload, &mut Steps::of(0));
    assert_eq!(unexplained[0].for_publisher("payload"), Invalid::new("payload", "does not satisfy the schema"));
}
