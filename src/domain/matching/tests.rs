//! What the catalog finds, and that it does not look at the rest.

use std::collections::BTreeMap;

use chrono::DateTime;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn subscription(id: i64, mut fields: Value) -> Arc<Subscription> {
    fields["url"] = json!("http://a");
    let spec = SubscriptionSpec::parse(fields.as_object().unwrap()).unwrap();
    Arc::new(Subscription { id, version: 1, spec })
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

fn ids(catalog: &Catalog, event: &Event) -> Vec<i64> {
    catalog.matching(&event.subject()).iter().map(|subscription| subscription.id).collect()
}

#[test]
fn types_are_found_by_name_by_prefix_and_by_star() {
    let catalog = catalog([
        json!({"event_types": "user.created"}),
        json!({"event_types": "user.*"}),
        json!({"event_types": "*"}),
        json!({}),
        json!({"event_types": ["user.created", "user.*", "*"]}),
        json!({"event_types": "order.*"}),
        json!({"event_types": "waybill.*"}),
    ]);
    assert_eq!(ids(&catalog, &Event::new(Some("user.created"), &[], &[])), [1, 2, 3, 4, 5]);
    assert_eq!(ids(&catalog, &Event::new(Some("user.address.changed"), &[], &[])), [2, 3, 4, 5]);
    assert_eq!(ids(&catalog, &Event::new(Some("user"), &[], &[])), [3, 4, 5]);
    assert_eq!(ids(&catalog, &Event::new(None, &[], &[])), [3, 4, 5]);
    assert_eq!(ids(&catalog, &Event::new(Some("waybill.delivery.exhausted"), &[], &[])), [7]);
}

#[test]
fn all_tags_and_labels_must_be_there() {
    let catalog = catalog([
        json!({"tags": "a,b"}),
        json!({"labels": {"x": "1", "y": "2"}}),
        json!({"tags": "a", "labels": {"x": "1"}}),
    ]);
    assert_eq!(ids(&catalog, &Event::new(None, &["c", "b", "a"], &[])), [1]);
    assert_eq!(ids(&catalog, &Event::new(None, &["a"], &[("x", "1")])), [3]);
    assert_eq!(ids(&catalog, &Event::new(None, &["a", "b"], &[("x", "1"), ("y", "2")])), [1, 2, 3]);
    assert!(ids(&catalog, &Event::new(None, &["a"], &[("x", "2")])).is_empty());
}

#[test]
fn a_payload_is_parsed_only_for_a_filter_that_asks_for_it() {
    let catalog = catalog([
        json!({"filter": {"type": "b"}}),
        json!({"event_types": "a", "filter": {"payload.n": 1}}),
        json!({"tags": "none", "filter": {"payload.n": 1}}),
    ]);
    let other = Event::new(Some("b"), &[], &[]);
    let subject = other.subject();
    assert_eq!(catalog.matching(&subject).len(), 1);
    assert!(!subject.was_parsed());
    let asked = Event::new(Some("a"), &[], &[]);
    let subject = asked.subject();
    assert_eq!(catalog.matching(&subject)[0].id, 2);
    assert!(subject.was_parsed());
}

#[test]
fn a_payload_that_cannot_be_looked_into_matches_nothing_that_looks() {
    let labels = BTreeMap::new();
    let catalog = catalog([json!({"filter": {"payload.n": {"$exists": true}}}), json!({})]);
    for payload in [r#"{"n":1e999}"#, r#"{"n":"\ud800"}"#] {
        let subject = Subject::new(None, &[], &labels, Some(payload), DateTime::UNIX_EPOCH);
        assert_eq!(catalog.matching(&subject).len(), 1, "{payload}");
    }
}

#[test]
fn of_a_thousand_subscriptions_an_event_looks_at_its_few() {
    let catalog = catalog((0..1000).map(|n| match n % 4 {
        0 => json!({"event_types": format!("type.{n}")}),
        1 => json!({"event_types": format!("group.{n}.*")}),
        2 => json!({"labels": {"env": "prod", "tenant": n.to_string()}}),
        _ => json!({"event_types": "*", "tags": ["all", format!("tag-{n}")]}),
    }));
    assert_eq!(catalog.len(), 1000);
    let labels = [("env", "prod"), ("tenant", "6")];
    let candidates = |event: Event| catalog.candidates(&event.subject());
    assert_eq!(candidates(Event::new(Some("type.4"), &["all"], &[("env", "prod")])), 1);
    assert_eq!(candidates(Event::new(Some("group.5.x"), &["all", "tag-7"], &labels)), 3);
    assert_eq!(candidates(Event::new(Some("nobody.cares"), &["all"], &[("tenant", "no")])), 0);
    assert_eq!(ids(&catalog, &Event::new(Some("group.5.x"), &["all", "tag-7"], &labels)), [6, 7, 8]);
}

#[test]
fn subscriptions_come_by_id_in_whatever_order_they_were_given() {
    let all = [9, 3, 7].map(|id| subscription(id, json!({"tags": "a"})));
    assert_eq!(ids(&Catalog::new(all.to_vec()), &Event::new(None, &["a"], &[])), [3, 7, 9]);
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
    fn the_index_finds_what_asking_everybody_finds(
        all in prop::collection::vec(any_subscription(), 0..20),
        event_type in prop::option::of("(a|b|waybill)(\\.[ab]){0,3}"),
        tags in words(0..3),
        labels in prop::collection::btree_map("[xy]", "[12]", 0..3),
    ) {
        let catalog = catalog(all);
        let event = Event { event_type, tags, labels, payload: r#"{"n": 1}"#.into() };
        let wanted = |subscription: &&Arc<Subscription>| is_for(&subscription.spec, &event.subject());
        let asked: Vec<i64> = catalog.subscriptions.iter().filter(wanted).map(|found| found.id).collect();
        prop_assert_eq!(ids(&catalog, &event), asked);
    }
}
