//! Filters for events.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::domain::json::RawJson;
use crate::domain::path::JsonPath;
use crate::domain::search::{PayloadConditions, is_match};
use crate::domain::status::Status;

/// A filter for events. Its fields are named as in the API, so its JSON is the filter of an operation.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventFilter {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<Status>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ordering_key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<DateTime<Utc>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<DateTime<Utc>>,
    /// A part of the title or of the last error, in any case.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub payload: PayloadConditions,
    #[serde(default, skip_serializing_if = "Exclusions::is_empty")]
    pub not: Exclusions,
}

/// What an event must not have. An event without a field is not excluded by it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exclusions {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<Status>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ordering_key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub payload: PayloadConditions,
}

impl Exclusions {
    fn is_empty(&self) -> bool {
        *self == Exclusions::default()
    }

    fn is_about_the_event(&self) -> bool {
        !self.tags.is_empty()
            || self.event_type.is_some()
            || self.correlation_id.is_some()
            || self.ordering_key.is_some()
            || self.text.is_some()
            || !self.labels.is_empty()
    }

    fn is_about_the_work(&self) -> bool {
        self.status.is_some() || self.worker_id.is_some() || self.text.is_some()
    }
}

impl EventFilter {
    /// Returns whether the filter has a field of the event itself, other than its payload.
    pub(super) fn is_about_the_event(&self) -> bool {
        !self.tags.is_empty()
            || self.event_type.is_some()
            || self.correlation_id.is_some()
            || self.ordering_key.is_some()
            || self.since.is_some()
            || self.until.is_some()
            || self.text.is_some()
            || !self.labels.is_empty()
            || self.not.is_about_the_event()
    }

    /// Returns whether the filter has a field of the event's own delivery.
    pub(super) fn is_about_the_work(&self) -> bool {
        self.status.is_some() || self.worker_id.is_some() || self.text.is_some() || self.not.is_about_the_work()
    }

    /// Returns the filter of a list: a worker without a status stands for what the worker holds now.
    pub(super) fn of_list(&self) -> Self {
        let held = self.worker_id.as_ref().map(|_| Status::Processing);
        EventFilter { status: self.status.or(held), ..self.clone() }
    }

    /// Returns whether the filter has fields that no index serves.
    pub(super) fn is_search(&self) -> bool {
        self.text.is_some() || !self.labels.is_empty() || !self.payload.is_empty() || !self.not.is_empty()
    }

    /// Returns whether payloads must be read.
    pub(crate) fn is_about_payloads(&self) -> bool {
        !self.payload.is_empty() || !self.not.payload.is_empty()
    }

    /// Returns whether the filter tells something about payloads or error texts.
    pub(crate) fn is_about_contents(&self) -> bool {
        self.text.is_some() || self.not.text.is_some() || self.is_about_payloads()
    }

    /// Returns the paths of the conditions on payloads, each with the name of its field.
    pub(crate) fn payload_paths(&self) -> impl Iterator<Item = (&'static str, &JsonPath)> {
        let wanted = self.payload.keys().map(|path| ("payload", path));
        wanted.chain(self.not.payload.keys().map(|path| ("not.payload", path)))
    }

    /// Returns the number of conditions on labels and payloads.
    pub(crate) fn search_conditions(&self) -> usize {
        self.labels.len() + self.payload.len() + self.not.labels.len() + self.not.payload.len()
    }

    /// Returns whether a payload fulfils the conditions on it.
    pub(super) fn admits(&self, payload: Option<&RawJson>) -> bool {
        is_match(payload, &self.payload, &self.not.payload)
    }
}
