//! Tests: which events filters match, which filters are refused, and how many bytes they read.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::domain::matching::Allowance;

fn holds(filter: &Filter, subject: &Subject<'_>) -> bool {
    filter.matches(subject, &mut Work::within(u64::MAX, &mut Allowance::unlimited())).unwrap()
}

fn time() -> DateTime<Utc> {
    "2026-03-01T12:00:00Z".parse().unwrap()
}

/// Returns whether a filter matches an `order.paid` event with `amount` 15 and `region` `eu`.
fn matches(filter: Value) -> bool {
    let payload = r#"{"amount": 15, "big": 9007199254740993, "name": "Zoë", "items": ["a", 1, null, [2]],
                      "user": {"id": 7, "mail": null}, "7": true}"#;
    let tags = ["email".to_owned(), "urgent".to_owned()];
    let labels = BTreeMap::from([("region".to_owned(), "eu".to_owned()), ("a.b".to_owned(), String::new())]);
    let subject = Subject::new(Some("order.paid"), &tags, &labels, Some(payload), time());
    holds(&Filter::parse(&filter).unwrap(), &subject)
}

fn matches_bare_event(filter: Value) -> bool {
    let labels = BTreeMap::new();
    let subject = Subject::new(None, &[], &labels, None, time());
    holds(&Filter::parse(&filter).unwrap(), &subject)
}

fn invalid_field(filter: Value) -> String {
    Filter::parse(&filter).unwrap_err().field
}

#[test]
fn a_bare_value_must_be_equal() {
    assert!(matches(json!({"payload.amount": 15})));
    assert!(matches(json!({"payload.amount": 15.0})));
    assert!(matches(json!({"event_type": "order.paid"})));
    assert!(matches(json!({"labels.a.b": ""})));
    assert!(matches(json!({"payload.user.mail": null})));
    assert!(matches(json!({"payload.7": true})));
    assert!(matches(json!({"payload.items": ["a", 1, null, [2]]})));
    assert!(matches(json!({"payload.user": {"$eq": {"mail": null, "id": 7}}})));
    assert!(!matches(json!({"payload.amount": "15"})));
    assert!(!matches(json!({"labels.region": "EU"})));
    assert!(!matches(json!({"payload.items": "a"})));
}

#[test]
fn an_empty_filter_matches_everything() {
    assert!(matches(json!({})));
    assert!(matches_bare_event(json!({})));
}

#[test]
fn all_fields_and_all_operators_must_hold() {
    assert!(matches(json!({"payload.amount": {"$gt": 10, "$lte": 15}, "labels.region": {"$in": ["eu", "us"]}})));
    assert!(!matches(json!({"payload.amount": {"$gt": 10, "$lt": 15}})));
    assert!(!matches(json!({"payload.amount": 15, "labels.region": "us"})));
}

#[test]
fn values_of_different_types_are_not_ordered() {
    assert!(matches(json!({"payload.amount": {"$gte": 14.5}})));
    assert!(matches(json!({"payload.big": {"$gt": 9_007_199_254_740_992u64}})));
    assert!(matches(json!({"payload.name": {"$gt": "Zoe"}})));
    assert!(matches(json!({"event_type": {"$lt": "p"}})));
    assert!(!matches(json!({"payload.amount": {"$gt": "1"}})));
    assert!(!matches(json!({"payload.items": {"$gt": 0}})));
    assert!(!matches(json!({"payload.none": {"$lt": 0}})));
}

#[test]
fn time_is_compared_as_a_point_in_time() {
    assert!(matches(json!({"created_at": "2026-03-01T13:00:00+01:00"})));
    assert!(matches(json!({"created_at": {"$gte": "2026-03-01T12:00:00Z", "$lt": "2026-03-01T12:00:00.000001Z"}})));
    assert!(!matches(json!({"created_at": {"$gt": "2026-03-01T12:00:00Z"}})));
    assert!(matches(json!({"created_at": {"$in": ["2026-03-01T12:00:00Z"]}})));
    assert_eq!(invalid_field(json!({"created_at": {"$gt": "yesterday"}})), "created_at.$gt");
    assert_eq!(invalid_field(json!({"created_at": 5})), "created_at");
    assert_eq!(invalid_field(json!({"created_at": {"$startsWith": "2026"}})), "created_at.$startsWith");
}

#[test]
fn tags_equal_a_single_tag_or_the_whole_list() {
    assert!(matches(json!({"tags": "urgent"})));
    assert!(matches(json!({"tags": ["email", "urgent"]})));
    assert!(!matches(json!({"tags": ["urgent", "email"]})));
    assert!(!matches(json!({"tags": ["email"]})));
    assert!(matches(json!({"tags": {"$in": ["sms", "email"]}})));
    assert!(matches(json!({"tags": {"$nin": ["sms"], "$contains": "email", "$exists": true}})));
    assert!(!matches(json!({"tags": {"$neq": "urgent"}})));
    assert!(matches_bare_event(json!({"tags": []})));
    assert!(matches_bare_event(json!({"tags": {"$exists": false}})));
    assert_eq!(invalid_field(json!({"tags": {"$gt": "a"}})), "tags.$gt");
    assert_eq!(invalid_field(json!({"tags": 5})), "tags");
}

#[test]
fn contains_searches_strings_and_lists() {
    assert!(matches(json!({"event_type": {"$startsWith": "order.", "$endsWith": ".paid", "$contains": "er.p"}})));
    assert!(matches(json!({"payload.name": {"$contains": "oë"}})));
    assert!(matches(json!({"payload.items": {"$contains": [2]}})));
    assert!(matches(json!({"payload.items": {"$contains": 1.0}})));
    assert!(!matches(json!({"payload.items": {"$contains": 2}})));
    assert!(!matches(json!({"payload.amount": {"$contains": "1"}})));
    assert!(!matches(json!({"payload.name": {"$contains": 1}})));
}

#[test]
fn a_missing_field_matches_only_negative_conditions() {
    for operators in [json!({"$exists": false}), json!({"$neq": 1}), json!({"$nin": [1]}), json!({"$not": {"$gt": 1}})]
    {
        assert!(matches(json!({"payload.none": operators})), "{operators}");
    }
    for operators in [
        json!({"$exists": true}),
        json!({"$eq": null}),
        json!({"$in": [null, 1]}),
        json!({"$lte": 1}),
        json!({"$startsWith": ""}),
        json!({"$contains": ""}),
    ] {
        assert!(!matches(json!({"payload.none": operators})), "{operators}");
    }
    assert!(matches(json!({"payload.user.mail": {"$exists": true}})));
    assert!(matches_bare_event(json!({"event_type": {"$exists": false}, "labels.x": {"$neq": "y"}})));
}

#[test]
fn a_missing_payload_is_null() {
    assert!(matches_bare_event(json!({"payload": null})));
    assert!(matches_bare_event(json!({"payload.a": {"$exists": false}})));
}

#[test]
fn filters_combine_with_and_or_and_not() {
    assert!(matches(json!({"$or": [{"event_type": "x"}, {"payload.amount": 15}]})));
    assert!(!matches(json!({"$or": [{"event_type": "x"}, {"payload.amount": 1}]})));
    assert!(!matches(json!({"$and": [{"event_type": "order.paid"}, {"payload.amount": 1}]})));
    assert!(matches(json!({"$not": {"event_type": "x", "payload.amount": 15}})));
    assert!(!matches(json!({"$not": {}})));
    assert!(matches(json!({"payload.amount": {"$not": {"$gt": 15, "$lt": 100}}})));
}

#[test]
fn an_error_names_the_position_in_the_filter() {
    assert_eq!(invalid_field(json!({"$or": [{}, {"payload.amount": {"$gt": true}}]})), "$or[1].payload.amount.$gt");
    assert_eq!(invalid_field(json!({"$and": [{"$not": {"colour": 1}}]})), "$and[0].$not.colour");
    assert_eq!(invalid_field(json!({"payload.a": {"$in": [1, "x\0"]}})), "payload.a.$in[1]");
    assert_eq!(invalid_field(json!({"payload.a": {"$not": {"$regex": "a+"}}})), "payload.a.$not.$regex");
    assert_eq!(invalid_field(json!([])), "");
    assert_eq!(invalid_field(json!({"labels.a": 1})), "labels.a");
    assert_eq!(invalid_field(json!({"payload.a": {"b": 1}})), "payload.a.b");
    assert_eq!(invalid_field(json!({"payload.a..b": 1})), "payload.a..b");
    for (bad, field) in [
        (json!({"$or": []}), "$or"),
        (json!({"$and": {}}), "$and"),
        (json!({"$not": []}), "$not"),
        (json!({"$nor": []}), "$nor"),
        (json!({"payload.a": {}}), "payload.a"),
        (json!({"payload.a": {"$exists": 1}}), "payload.a.$exists"),
        (json!({"payload.a": {"$in": 1}}), "payload.a.$in"),
        (json!({"payload.a": {"$startsWith": 1}}), "payload.a.$startsWith"),
        (json!({"payload.a": {"$not": 1}}), "payload.a.$not"),
        (json!({"labels.": "x"}), "labels."),
        (json!({"payload.": "x"}), "payload."),
        (json!({"labels.x": {"$contains": 1}}), "labels.x.$contains"),
    ] {
        assert_eq!(invalid_field(bad), field);
    }
}

#[test]
fn filters_have_limits() {
    let nested = |depth: usize| (1..depth).fold(json!({"event_type": "a"}), |inner, _| json!({ "$not": inner }));
    assert!(Filter::parse(&nested(8)).is_ok());
    assert!(Filter::parse(&nested(9)).is_err());
    let nots = |depth: usize| (1..depth).fold(json!({"$gt": 1}), |inner, _| json!({ "$not": inner }));
    assert!(Filter::parse(&json!({"payload.a": nots(8)})).is_ok());
    assert!(Filter::parse(&json!({"payload.a": nots(9)})).is_err());
    let lists = |depth: usize| (1..depth).fold(json!(1), |inner, _| json!([inner]));
    assert!(Filter::parse(&json!({"payload.a": {"$eq": lists(8)}})).is_ok());
    assert!(Filter::parse(&json!({"payload.a": {"$eq": lists(9)}})).is_err());
    let many = |count: usize| json!({"$and": [{"$or": vec![json!({"event_type": "a"}); count / 2]}, {"$or": vec![json!({"event_type": "b"}); count.div_ceil(2)]}]});
    assert!(Filter::parse(&many(100)).is_ok());
    assert!(Filter::parse(&many(101)).is_err());
    assert!(Filter::parse(&json!({"payload.a": {"$in": vec![1; 100]}})).is_ok());
    assert!(Filter::parse(&json!({"payload.a": {"$in": vec![1; 101]}})).is_err());
    assert!(Filter::parse(&json!({"event_type": "x".repeat(1000)})).is_ok());
    assert!(Filter::parse(&json!({"event_type": "x".repeat(1001)})).is_err());
    assert!(Filter::parse(&json!({"payload.a": {"$in": vec!["x".repeat(160); 100]}})).is_ok());
    assert!(Filter::parse(&json!({"payload.a": {"$in": vec!["x".repeat(170); 100]}})).is_err());
}

#[test]
fn deep_nesting_is_refused_without_deep_recursion() {
    let text = format!("{}1{}", r#"{"$not":"#.repeat(100), "}".repeat(100));
    assert!(Filter::parse(&serde_json::from_str(&text).unwrap()).is_err());
    let text = format!(r#"{{"payload.a":{{"$eq":{}1{}}}}}"#, "[".repeat(100), "]".repeat(100));
    assert!(Filter::parse(&serde_json::from_str(&text).unwrap()).is_err());
}

#[test]
fn the_most_expensive_filter_over_the_largest_payload_stays_within_its_budget() {
    let conditions: Vec<Value> = (0..50)
        .flat_map(|n| {
            [
                json!({"payload.s": {"$contains": format!("{}{n}", "a".repeat(60))}}),
                json!({"payload.l": {"$contains": [n]}}),
            ]
        })
        .collect();
    let filter = Filter::parse(&json!({ "$or": conditions })).unwrap();
    let payload = json!({"s": "a".repeat(500_000), "l": vec![json!(["x"]); 100_000]}).to_string();
    let labels = BTreeMap::new();
    let subject = Subject::new(None, &[], &labels, Some(&payload), time());
    let run = |budget: u64| {
        let mut allowance = Allowance::unlimited();
        let mut work = Work::within(budget, &mut allowance);
        (filter.matches(&subject, &mut work), work.used())
    };
    let (matches, needed) = run(u64::MAX);
    assert_eq!(matches, Ok(false));
    assert!((50 * 500_000..200_000_000).contains(&needed), "{needed}");
    assert_eq!(run(needed), (Ok(false), needed));
    let (refused, used) = run(needed - 1);
    assert_eq!(refused, Err(Halt::OverBudget));
    assert!(used < needed, "{used}");
}

/// The cost of all other conditions does not depend on the size of the payload.
#[test]
fn only_contains_costs_more_for_a_larger_payload() {
    let cost = |filter: Value, payload: Value| {
        let (labels, text) = (BTreeMap::new(), payload.to_string());
        let subject = Subject::new(None, &[], &labels, Some(&text), time());
        let mut allowance = Allowance::unlimited();
        let mut work = Work::within(u64::MAX, &mut allowance);
        Filter::parse(&filter).unwrap().matches(&subject, &mut work).unwrap();
        work.used()
    };
    let long = json!({"s": "a".repeat(100_000), "l": vec![1; 10_000], "o": {"a": 1}});
    for cheap in [
        json!({"payload.s": "a"}),
        json!({"payload.s": {"$gt": "a"}}),
        json!({"payload.s": {"$startsWith": "aa", "$endsWith": "aa"}}),
        json!({"payload.s": {"$in": vec!["b"; 100]}}),
        json!({"payload.l": [1, 2, 3]}),
        json!({"payload.o": {"$eq": {"a": 2}}}),
        json!({"payload.l.9999": 1}),
        json!({"payload": {"$exists": true}}),
    ] {
        assert!(cost(cheap.clone(), long.clone()) < 1_000, "{cheap}");
    }
    assert!(cost(json!({"payload.s": {"$contains": "b"}}), long.clone()) > 100_000);
    assert!(cost(json!({"payload.l": {"$contains": 2}}), long) > 50_000);
}

/// Generates JSON that is often a valid filter.
fn filter_like() -> impl Strategy<Value = Value> {
    let scalar = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[a-z]{0,4}".prop_map(Value::from),
    ];
    let key = prop::sample::select(vec![
        "event_type",
        "tags",
        "created_at",
        "labels.region",
        "payload",
        "payload.a",
        "payload.a.b",
        "$and",
        "$or",
        "$not",
        "$eq",
        "$neq",
        "$gt",
        "$lte",
        "$in",
        "$nin",
        "$exists",
        "$startsWith",
        "$contains",
        "other",
    ]);
    scalar.prop_recursive(5, 40, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(key.clone().prop_map(str::to_owned), inner, 0..4)
                .prop_map(|entries| Value::Object(entries.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn exactly_one_of_a_filter_and_its_negation_matches(value in filter_like(), payload in filter_like()) {
        let labels = BTreeMap::from([("region".to_owned(), "eu".to_owned())]);
        let tags = ["a".to_owned()];
        let text = payload.to_string();
        let subject = Subject::new(Some("a"), &tags, &labels, Some(&text), time());
        if let Ok(filter) = Filter::parse(&value) {
            let negation = Filter::parse(&json!({ "$not": value })).ok();
            if let Some(negation) = negation {
                prop_assert_ne!(holds(&filter, &subject), holds(&negation, &subject));
            }
            prop_assert_eq!(Filter::parse(filter.to_json()), Ok(filter));
        }
    }

    #[test]
    fn neq_is_the_opposite_of_eq(operand in filter_like(), payload in filter_like()) {
        let labels = BTreeMap::new();
        let text = json!({ "a": payload }).to_string();
        let subject = Subject::new(None, &[], &labels, Some(&text), time());
        let with = |operator: &str| Filter::parse(&json!({"payload.a": { operator: operand }}));
        if let (Ok(equal), Ok(unequal)) = (with("$eq"), with("$neq")) {
            prop_assert_ne!(holds(&equal, &subject), holds(&unequal, &subject));
        }
    }
}
