//! Why an event does not match one subscription, for people who write one.

use super::{Allowance, Budget, Halt, Stopped, Subject, Work};
use crate::domain::subscription::SubscriptionSpec;

/// The first setting of a subscription that an event does not satisfy, in the order in which they are tested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mismatch {
    EventTypes,
    Tags,
    Labels,
    Filter,
    /// The filter would have to read more than it may, which counts as not matching.
    FilterOverBudget,
}

impl Mismatch {
    /// Returns the name used in the API.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Mismatch::EventTypes => "event_types",
            Mismatch::Tags => "tags",
            Mismatch::Labels => "labels",
            Mismatch::Filter => "filter",
            Mismatch::FilterOverBudget => "filter_over_budget",
        }
    }

    /// Returns why an event does not match, or `None` if it does. The filter has the budget that it has if no other
    /// subscription is there and the event is published alone.
    pub(crate) fn find(
        spec: &SubscriptionSpec,
        subject: &Subject<'_>,
        allowance: &mut Allowance<'_>,
    ) -> Result<Option<Self>, Stopped> {
        let filter = match (Self::apart_from_filter(spec, subject), &spec.filter) {
            (None, Some(filter)) => filter,
            (mismatch, _) => return Ok(mismatch),
        };
        let share = Budget::of(subject.payload_bytes(), 1).share(1);
        match filter.matches(subject, &mut Work::within(share, allowance)) {
            Ok(true) => Ok(None),
            Ok(false) => Ok(Some(Mismatch::Filter)),
            Err(Halt::OverBudget) => Ok(Some(Mismatch::FilterOverBudget)),
            Err(Halt::Stopped) => Err(Stopped),
        }
    }

    /// Returns why an event does not match the types, tags and labels of a subscription. The filter is not evaluated.
    pub(super) fn apart_from_filter(spec: &SubscriptionSpec, subject: &Subject<'_>) -> Option<Self> {
        let has_label = |(name, value): (&String, &String)| subject.labels.get(name) == Some(value);
        if !spec.wants_type(subject.event_type) {
            Some(Mismatch::EventTypes)
        } else if !spec.tags.as_slice().iter().all(|tag| subject.tags.contains(tag)) {
            Some(Mismatch::Tags)
        } else if !spec.labels.iter().all(has_label) {
            Some(Mismatch::Labels)
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use chrono::DateTime;
    use serde_json::{Value, json};

    use super::*;

    fn find(mut fields: Value) -> Option<&'static str> {
        fields["url"] = json!("http://a");
        let spec = SubscriptionSpec::parse(fields.as_object().unwrap()).unwrap();
        let (tags, labels) = (["a".to_owned()], BTreeMap::from([("env".to_owned(), "prod".to_owned())]));
        let payload = format!(r#"{{"n": 5, "text": "{}"}}"#, "x".repeat(100));
        let subject = Subject::new(Some("order.paid"), &tags, &labels, Some(&payload), DateTime::UNIX_EPOCH);
        Mismatch::find(&spec, &subject, &mut Allowance::unlimited()).unwrap().map(Mismatch::as_str)
    }

    #[test]
    fn the_first_setting_that_is_not_satisfied_is_named() {
        assert_eq!(find(json!({})), None);
        assert_eq!(find(json!({"event_types": ["order.*"], "filter": {"payload.n": {"$gt": 4}}})), None);
        assert_eq!(find(json!({"event_types": ["user.*"], "tags": ["b"]})), Some("event_types"));
        assert_eq!(find(json!({"tags": ["a", "b"]})), Some("tags"));
        assert_eq!(find(json!({"labels": {"env": "test"}})), Some("labels"));
        assert_eq!(find(json!({"filter": {"payload.n": {"$gt": 5}}})), Some("filter"));
    }
}
