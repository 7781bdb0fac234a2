//! Filters for events in requests: as parameters of a list, and as the `filter` of an operation.
//!
//! Both have the same fields. A parameter `labels.team` is the field `team` of the object `labels`, and `not.` before a
//! parameter is the object `not`. What a filter tells about contents is for those who may see contents.

use std::collections::BTreeMap;

use serde_json::value::RawValue;

use super::events::STATES;
use super::query::Query;
use super::redaction::redaction_for;
use crate::domain::api_key::{KeyScope, Principal};
use crate::domain::input::{FieldValue, Fields, QueryValue, RawFields, check_label, shown};
use crate::domain::invalid::Invalid;
use crate::domain::path::JsonPath;
use crate::domain::scope::Scope;
use crate::domain::search::PayloadConditions;
use crate::domain::status::Status;
use crate::domain::{limits, text};
use crate::engine::Engine;
use crate::error::Error;
use crate::store::lists::event_filter::{EventFilter, Exclusions};

/// Reads the filter of a list from its parameters.
pub(crate) fn read_filter(query: &mut Query) -> EventFilter {
    let filter = EventFilter {
        status: query.choice("status", Status::parse, STATES),
        tags: read_tags(query, "tags"),
        event_type: query.text("event_type", limits::NAME_CHARS),
        worker_id: query.worker_id("worker_id"),
        correlation_id: query.text("correlation_id", limits::NAME_CHARS),
        ordering_key: query.text("ordering_key", limits::NAME_CHARS),
        since: query.timestamp("since"),
        until: query.timestamp("until"),
        text: query.text("text", limits::SEARCH_TEXT_CHARS),
        labels: read_labels(query, "labels."),
        payload: read_payload(query, "payload."),
        not: Exclusions {
            status: query.choice("not.status", Status::parse, STATES),
            tags: read_tags(query, "not.tags"),
            event_type: query.text("not.event_type", limits::NAME_CHARS),
            worker_id: query.worker_id("not.worker_id"),
            correlation_id: query.text("not.correlation_id", limits::NAME_CHARS),
            ordering_key: query.text("not.ordering_key", limits::NAME_CHARS),
            text: query.text("not.text", limits::SEARCH_TEXT_CHARS),
            labels: read_labels(query, "not.labels."),
            payload: read_payload(query, "not.payload."),
        },
    };
    check_conditions(query, &filter);
    filter
}

/// Reads the filter of an operation on events, all but its `status`.
pub(crate) fn read_json_filter(fields: &mut RawFields<'_>, status: Option<Status>) -> EventFilter {
    let filter = EventFilter {
        status,
        tags: fields.tag_list("tags").unwrap_or_default().as_slice().to_vec(),
        event_type: fields.text("event_type", limits::NAME_CHARS),
        worker_id: fields.worker_id("worker_id"),
        correlation_id: fields.text("correlation_id", limits::NAME_CHARS),
        ordering_key: fields.text("ordering_key", limits::NAME_CHARS),
        since: fields.timestamp("since"),
        until: fields.timestamp("until"),
        text: fields.text("text", limits::SEARCH_TEXT_CHARS),
        labels: fields.labels("labels").unwrap_or_default(),
        payload: read_json_payload(fields),
        not: fields.object("not", |not| Some(read_json_exclusions(not))).unwrap_or_default(),
    };
    check_conditions(fields, &filter);
    filter
}

fn read_json_exclusions(not: &mut RawFields<'_>) -> Exclusions {
    Exclusions {
        status: not.choice("status", Status::parse, STATES),
        tags: not.tag_list("tags").unwrap_or_default().as_slice().to_vec(),
        event_type: not.text("event_type", limits::NAME_CHARS),
        worker_id: not.worker_id("worker_id"),
        correlation_id: not.text("correlation_id", limits::NAME_CHARS),
        ordering_key: not.text("ordering_key", limits::NAME_CHARS),
        text: not.text("text", limits::SEARCH_TEXT_CHARS),
        labels: not.labels("labels").unwrap_or_default(),
        payload: read_json_payload(not),
    }
}

/// Reads tags in the order of their names: in another order they are the same filter, with the same cursors.
fn read_tags(query: &mut Query, name: &str) -> Vec<String> {
    let mut tags = query.some_tags(name).unwrap_or_default().as_slice().to_vec();
    tags.sort_unstable();
    tags
}

fn read_labels(query: &mut Query, prefix: &str) -> BTreeMap<String, String> {
    let mut labels = BTreeMap::new();
    for (label, QueryValue(value)) in query.take_all(prefix) {
        match check_label(&label, Some(value)) {
            Ok(value) => drop(labels.insert(label, value)),
            Err(reason) => query.refuse(shown(&format!("{prefix}{label}")), reason),
        }
    }
    labels
}

fn read_payload(query: &mut Query, prefix: &str) -> PayloadConditions {
    let mut conditions = PayloadConditions::new();
    for (path, QueryValue(value)) in query.take_all(prefix) {
        match read_condition(&path, value) {
            Ok((path, value)) => drop(conditions.insert(path, value)),
            Err(reason) => query.refuse(shown(&format!("{prefix}{path}")), reason),
        }
    }
    conditions
}

fn read_json_payload(fields: &mut RawFields<'_>) -> PayloadConditions {
    let read = |payload: &mut RawFields<'_>| {
        let mut conditions = PayloadConditions::new();
        for (path, value) in payload.take_all("") {
            match text_of(value).and_then(|value| read_condition(&path, value)) {
                Ok((path, value)) => drop(conditions.insert(path, value)),
                Err(reason) => payload.refuse(shown(&path), reason),
            }
        }
        Some(conditions)
    };
    fields.object("payload", read).unwrap_or_default()
}

fn read_condition(path: &str, value: String) -> Result<(JsonPath, String), String> {
    let path = JsonPath::parse_within(path, limits::SEARCH_PATH_CHARS, limits::SEARCH_PATH_SEGMENTS)
        .map_err(|reason| format!("has a path that {reason}"))?;
    text::check_optional(&value, limits::FILTER_STRING_CHARS)?;
    Ok((path, value))
}

/// Returns the text of a string, and the spelling of any other value.
fn text_of(value: &RawValue) -> Result<String, String> {
    match value.get().as_bytes().first() {
        Some(b'"') => value.parse().ok_or_else(|| "must be a string of valid Unicode".into()),
        Some(b'{' | b'[') => Err("must be a string, a number, true, false or null".into()),
        _ => Ok(value.get().to_owned()),
    }
}

fn check_conditions<V: FieldValue>(fields: &mut Fields<'_, V>, filter: &EventFilter) {
    if filter.search_conditions() > limits::SEARCH_CONDITIONS {
        let field = if filter.is_about_payloads() { "payload" } else { "labels" };
        let most = limits::SEARCH_CONDITIONS;
        fields.refuse(field, format!("must have at most {most} conditions, with those on labels and in not"));
    }
}

/// Checks that a caller may learn what a filter tells: who may not see error texts and payloads may not search them,
/// and nobody searches what is redacted. `place` comes before the names of fields in the error.
pub(crate) async fn check_search(
    engine: &Engine,
    scope: &Scope,
    reader: &Principal,
    filter: &EventFilter,
    place: &str,
) -> Result<(), Error> {
    if !filter.is_about_contents() {
        return Ok(());
    }
    if !reader.may_reveal() {
        return Err(Error::ScopeMissing(KeyScope::Reveal));
    }
    if !filter.is_about_payloads() {
        return Ok(());
    }
    let redaction = redaction_for(engine, scope, reader).await?;
    let redacted = filter.payload_paths().filter(|(_, path)| redaction.is_redacted(&format!("payload.{path}")));
    let errors: Vec<Invalid> = redacted
        .map(|(field, path)| {
            let name = shown(&format!("{place}{field}.{path}"));
            Invalid::new(name, "is redacted, or has a part that is, and cannot be searched")
        })
        .collect();
    if errors.is_empty() { Ok(()) } else { Err(Error::Invalid(errors)) }
}
