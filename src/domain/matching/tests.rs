//! Tests: which subscriptions the catalog finds, and how much it reads to find them.

use std::collections::BTreeMap;

use chrono::DateTime;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::domain::ids::SubscriptionId;

fn subscription(id: i64, mut fields: Value) -> Arc<Subscription> {
    fields["url"] = json!("http://a");
    let spec = SubscriptionSpec::parse(fields.as_object().unwrap()).unwrap();
    Arc::new(Subscription { id: SubscriptionId(id), version: 1, spec })
}

fn catalog(all: impl IntoIterator<Item = Value>) -> Catalog {
    Catalog::new(all.into_iter().zip(1..).map(|(fields, id)| subscription(id, fields)).collect())
}

struct Event {
    event_type: Option<String>,
    tags: Vec<String>,
    labels: BTreeMap<String, String>,
    payload: String,
}

impl Event {
    fn new(event_type: Option<&str>, tags: &[&str], labels: &[(&str, &str)]) -> Self {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        Self {
            event_type: event_type.map(str::to_owned),
            tags: tags.iter().map(|tag| (*tag).to_owned()).collect(),
            labels: labels.iter().map(owned).collect(),
            payload: r#"{"n": 1}"#.to_owned(),
        }
    }

    fn subject(&self) -> Subject<'_> {
        let time = DateTime::UNIX_EPOCH;
        Subject::new(self.event_type.as_deref(), &self.tags, &self.labels, Some(&self.payload), time)
    }
}

fn budget(subject: &Subject<'_>) -> Budget {
    Budget::of(subject.payload_bytes(), 1)
}

fn matches<'a>(catalog: &'a Catalog, subject: &Subject<'_>) -> Matches<'a> {
    catalog.matching(subject, budget(subject), &mut Allowance::unlimited()).unwrap()
}

fn ids_of(subscriptions: &[&Arc<Subscription>]) -> Vec<i64> {
    subscriptions.iter().map(|subscription| subscription.id.0).collect()
}

fn ids(catalog: &Catalog, event: &Event) -> Vec<i64> {
    ids_of(&matches(catalog, &event.subject()).matched)
}

#[test]
fn types_match_by_name_by_prefix_and_by_star() {
    let catalog = catalog([
        json!({"event_types": ["user.created"]}),
        json!({"event_types": ["user.*"]}),
        json!({"event_types": ["*"]}),
        json!({}),
        json!({"event_types": ["user.created", "user.*", "*"]}),
        json!({"event_types": ["order.*"]}),
        json!({"event_types": ["waybill.*"]}),
    ]);
    assert_eq!(ids(&catalog, &Event::new(Some("user.created"), &[], &[])), [1, 2, 3, 4, 5]);
    assert_eq!(ids(&catalog, &Event::new(Some("user.address.changed"), &[], &[])), [2, 3, 4, 5]);
    assert_eq!(ids(&catalog, &Event::new(Some("user"), &[], &[])), [3, 4, 5]);
    assert_eq!(ids(&catalog, &Event::new(None, &[], &[])), [3, 4, 5]);
    assert_eq!(ids(&catalog, &Event::new(Some("waybill.delivery.exhausted"), &[], &[])), [7]);
}

#[test]
fn an_event_must_have_all_tags_and_labels() {
    let catalog = catalog([
        json!({"tags": ["a", "b"]}),
        json!({"labels": {"x": "1", "y": "2"}}),
        json!({"tags": ["a"], "labels": {"x": "1"}}),
    ]);
    assert_eq!(ids(&catalog, &Event::new(None, &["c", "b", "a"], &[])), [1]);
    assert_eq!(ids(&catalog, &Event::new(None, &["a"], &[("x", "1")])), [3]);
    assert_eq!(ids(&catalog, &Event::new(None, &["a", "b"], &[("x", "1"), ("y", "2")])), [1, 2, 3]);
    assert!(ids(&catalog, &Event::new(None, &["a"], &[("x", "2")])).is_empty());
}

#[test]
fn a_payload_is_parsed_only_for_a_filter_that_reads_it() {
    let catalog = catalog([
        json!({"filter": {"event_type": "b"}}),
        json!({"event_types": ["a"], "filter": {"payload.n": 1}}),
        json!({"tags": ["none"], "filter": {"payload.n": 1}}),
    ]);
    let other = Event::new(Some("b"), &[], &[]);
    let subject = other.subject();
    assert_eq!(matches(&catalog, &subject).matched.len(), 1);
    assert!(!subject.was_parsed());
    let read = Event::new(Some("a"), &[], &[]);
    let subject = read.subject();
    assert_eq!(matches(&catalog, &subject).matched[0].id, SubscriptionId(2));
    assert!(subject.was_parsed());
}

#[test]
fn an_unparsable_payload_matches_no_payload_filter() {
    let labels = BTreeMap::new();
    let catalog = catalog([json!({"filter": {"payload.n": {"$exists": true}}}), json!({})]);
    for payload in [r#"{"n":1e999}"#, r#"{"n":"\ud800"}"#] {
        let subject = Subject::new(None, &[], &labels, Some(payload), DateTime::UNIX_EPOCH);
        assert_eq!(matches(&catalog, &subject).matched.len(), 1, "{payload}");
    }
}

#[test]
fn an_event_tests_few_of_a_thousand_subscriptions() {
    let catalog = catalog((0..1000).map(|n| match n % 4 {
        0 => json!({"event_types": [format!("type.{n}")]}),
        1 => json!({"event_types": [format!("group.{n}.*")]}),
        2 => json!({"labels": {"env": "prod", "tenant": n.to_string()}}),
        _ => json!({"event_types": ["*"], "tags": ["all", format!("tag-{n}")]}),
    }));
    assert_eq!(catalog.subscriptions.len(), 1000);
    let labels = [("env", "prod"), ("tenant", "6")];
    let candidates = |event: Event| catalog.candidates(&event.subject());
    assert_eq!(candidates(Event::new(Some("type.4"), &["all"], &[("env", "prod")])), 1);
    assert_eq!(candidates(Event::new(Some("group.5.x"), &["all", "tag-7"], &labels)), 3);
    assert_eq!(candidates(Event::new(Some("nobody.cares"), &["all"], &[("tenant", "no")])), 0);
    assert_eq!(ids(&catalog, &Event::new(Some("group.5.x"), &["all", "tag-7"], &labels)), [6, 7, 8]);
}

#[test]
fn matches_are_sorted_by_id() {
    let all = [9, 3, 7].map(|id| subscription(id, json!({"tags": ["a"]})));
    assert_eq!(ids(&Catalog::new(all.to_vec()), &Event::new(None, &["a"], &[])), [3, 7, 9]);
}

/// Returns a filter that reads all of `payload.s` `times` times and does not match.
fn reading_filter(times: usize) -> Value {
    let conditions: Vec<Value> = (0..times).map(|n| json!({"payload.s": {"$contains": format!("b{n}")}})).collect();
    json!({"filter": {"$or": conditions}})
}

fn event_with(bytes: usize) -> Event {
    Event { payload: json!({"s": "a".repeat(bytes)}).to_string(), ..Event::new(None, &[], &[]) }
}

const MIB: u64 = 1024 * 1024;

#[test]
fn two_hundred_expensive_filters_read_a_bounded_number_of_bytes() {
    for times in [1, 4, 99] {
        let all = (0..200).map(|_| reading_filter(times));
        let all = all.chain([json!({"filter": {"payload.s": {"$startsWith": "aa"}}}), json!({})]);
        let (catalog, event) = (catalog(all), event_with(80_000));
        let (subject, mut allowance) = (event.subject(), Allowance::unlimited());
        let found = catalog.matching(&subject, budget(&subject), &mut allowance).unwrap();
        assert_eq!(ids_of(&found.matched), [201, 202]);
        let expected = if times == 1 { vec![] } else { (1..=200).collect() };
        assert_eq!(ids_of(&found.over_budget), expected);
        let (parsing, finding) = (8 * event.payload.len() as u64, 202 * 8);
        assert!(allowance.used() <= 16 * MIB + 16 * 80_010 + parsing + finding, "{}", allowance.used());
    }
}

#[test]
fn a_filter_within_its_share_is_always_evaluated() {
    for expensive in [0, 1, 10, 100, 170] {
        let cheap = json!({"filter": {"payload.s": {"$contains": "aaa"}}});
        let all = (0..expensive).map(|_| reading_filter(99)).chain([cheap]);
        let found = catalog(all);
        assert_eq!(ids(&found, &event_with(100_000)), [expensive + 1], "{expensive}");
    }
    // A cheap filter is evaluated however many filters there are.
    let all = (0..5_000).map(|_| reading_filter(99)).chain([json!({"filter": {"payload.s": {"$startsWith": "aa"}}})]);
    assert_eq!(ids(&catalog(all), &event_with(100_000)), [5_001]);
}

#[test]
fn an_expensive_filter_gets_what_cheap_filters_do_not_use() {
    let cheap = (0..1_000).map(|n| json!({"filter": {"payload.n": n}}));
    let catalog = catalog(cheap.chain([reading_filter(12)]));
    let found = matches(&catalog, &event_with(1_000_000).subject()).over_budget.len();
    assert_eq!(found, 0, "its equal share would be a thirtieth of one read of the payload");
}

#[test]
fn a_filter_over_its_budget_does_not_match_even_when_negated() {
    let expensive = reading_filter(99)["filter"].clone();
    let catalog = catalog([json!({ "filter": { "$not": expensive } }), json!({ "filter": expensive })]);
    let event = event_with(1_000_000);
    let found = matches(&catalog, &event.subject());
    assert_eq!((found.matched.len(), ids_of(&found.over_budget)), (0, vec![1, 2]));
}

#[test]
fn an_allowance_never_changes_the_result() {
    let catalog =
        catalog([reading_filter(3), json!({"filter": {"payload.s": {"$contains": "aaa"}}}), reading_filter(99)]);
    let event = event_with(250_000);
    let whole = matches(&catalog, &event.subject());
    assert_eq!((ids_of(&whole.matched), ids_of(&whole.over_budget)), (vec![2], vec![3]));
    let mut results = 0;
    for bytes in (0..32 * MIB).step_by(MIB as usize) {
        let subject = event.subject();
        if let Ok(found) = catalog.matching(&subject, budget(&subject), &mut Allowance::of(bytes)) {
            assert_eq!(ids_of(&found.matched), ids_of(&whole.matched));
            assert_eq!(ids_of(&found.over_budget), ids_of(&whole.over_budget));
            results += 1;
        }
    }
    assert!(results > 0 && results < 32, "{results}");
    let is_cancelled = std::sync::atomic::AtomicBool::new(true);
    let (subject, mut none) = (event.subject(), Allowance::unlimited().until(&is_cancelled));
    assert_eq!(catalog.matching(&subject, budget(&subject), &mut none).unwrap_err(), Stopped);
}

#[test]
fn a_large_payload_is_not_parsed_beyond_the_allowance() {
    let catalog = catalog([json!({"filter": {"payload.n": 1}})]);
    let event = event_with(1_000_000);
    let subject = event.subject();
    assert!(catalog.matching(&subject, budget(&subject), &mut Allowance::of(1_000_000)).is_err());
    assert!(!subject.was_parsed());
}

fn words(range: std::ops::Range<usize>) -> impl Strategy<Value = Vec<String>> {
    prop::collection::vec("[ab]", range)
}

prop_compose! {
    fn any_subscription()(
        event_types in prop::collection::vec("(\\*|(a|b|waybill)(\\.[ab]){0,2}(\\.\\*)?)", 0..3),
        tags in words(0..3),
        labels in prop::collection::btree_map("[xy]", "[12]", 0..3),
        filter in prop_oneof![Just(json!(null)), Just(json!({"payload.n": 1})), Just(json!({"payload.n": 2}))],
    ) -> Value {
        json!({"event_types": event_types, "tags": tags, "labels": labels, "filter": filter})
    }
}

proptest! {
    #[test]
    fn the_index_finds_the_same_as_testing_every_subscription(
        all in prop::collection::vec(any_subscription(), 0..20),
        event_type in prop::option::of("(a|b|waybill)(\\.[ab]){0,3}"),
        tags in words(0..3),
        labels in prop::collection::btree_map("[xy]", "[12]", 0..3),
    ) {
        let catalog = catalog(all);
        let event = Event { event_type, tags, labels, payload: r#"{"n": 1}"#.into() };
        let wanted = |subscription: &&Arc<Subscription>| {
            let alone = Catalog::new(vec![Arc::clone(subscription)]);
            Mismatch::apart_from_filter(&subscription.spec, &event.subject()).is_none() && ids(&alone, &event).len() == 1
        };
        let expected: Vec<i64> = catalog.subscriptions.iter().filter(wanted).map(|found| found.id.0).collect();
        prop_assert_eq!(ids(&catalog, &event), expected);
    }
}
