//! The fields that a filter may test, and the values that an event has for them.

use std::cmp::Ordering;

use chrono::{DateTime, Utc};
use serde_json::Value;

use super::{Operand, all_hold, any_holds, compare};
use crate::domain::matching::{Halt, Subject, Work};
use crate::domain::path::JsonPath;
use crate::domain::{limits, text};

/// A field of an event that a filter may test.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Field {
    EventType,
    CreatedAt,
    Tags,
    Label(String),
    Payload,
    PayloadAt(JsonPath),
}

impl Field {
    /// Parses a field's name. A label's name is everything after `labels.`, including dots.
    pub(super) fn parse(name: &str) -> Result<Self, String> {
        match name {
            "event_type" => Ok(Self::EventType),
            "created_at" => Ok(Self::CreatedAt),
            "tags" => Ok(Self::Tags),
            "payload" => Ok(Self::Payload),
            _ => Self::parse_dotted(name),
        }
    }

    fn parse_dotted(name: &str) -> Result<Self, String> {
        if let Some(label) = name.strip_prefix("labels.") {
            text::check(label, limits::LABEL_CHARS)?;
            return Ok(Self::Label(label.to_owned()));
        }
        match name.strip_prefix("payload.") {
            Some(path) => JsonPath::parse(path).map(Self::PayloadAt),
            None => {
                Err("is neither event_type, created_at, tags, labels.<name>, payload, payload.<path>, nor an operator"
                    .into())
            }
        }
    }

    /// Returns the value that an event has for this field.
    pub(super) fn of<'a>(&self, subject: &'a Subject<'_>, work: &mut Work<'_, '_>) -> Result<EventValue<'a>, Halt> {
        let text = |found: Option<&'a str>| found.map_or(EventValue::Missing, EventValue::Text);
        let json = |found: Option<&'a Value>| found.map_or(EventValue::Missing, EventValue::Json);
        Ok(match self {
            Self::EventType => text(subject.event_type),
            Self::CreatedAt => EventValue::Time(subject.created_at),
            Self::Tags => EventValue::Tags(subject.tags),
            Self::Label(name) => {
                work.charge(name.len())?;
                text(subject.labels.get(name).map(String::as_str))
            }
            Self::Payload => json(subject.payload(work.allowance())?),
            Self::PayloadAt(path) => {
                work.charge(path.bytes())?;
                json(subject.payload(work.allowance())?.and_then(|payload| path.find(payload)))
            }
        })
    }
}

/// The value that an event has for a field.
pub(super) enum EventValue<'a> {
    Missing,
    Text(&'a str),
    Time(DateTime<Utc>),
    Tags(&'a [String]),
    Json(&'a Value),
}

impl<'a> EventValue<'a> {
    pub(super) fn exists(&self) -> bool {
        match self {
            EventValue::Missing => false,
            EventValue::Tags(tags) => !tags.is_empty(),
            EventValue::Text(_) | EventValue::Time(_) | EventValue::Json(_) => true,
        }
    }

    pub(super) fn text(&self) -> Option<&'a str> {
        match self {
            EventValue::Text(text) => Some(text),
            EventValue::Json(value) => value.as_str(),
            EventValue::Missing | EventValue::Time(_) | EventValue::Tags(_) => None,
        }
    }

    pub(super) fn equals(&self, operand: &Operand, work: &mut Work<'_, '_>) -> Result<bool, Halt> {
        match (self, operand) {
            (EventValue::Time(time), Operand::Time(other)) => Ok(time == other),
            (EventValue::Text(text), Operand::Json(other)) => is_text(other, text, work),
            (EventValue::Tags(tags), Operand::Json(Value::Array(others))) => Ok(tags.len() == others.len()
                && all_hold(tags.iter().zip(others), |(tag, other)| is_text(other, tag, work))?),
            (EventValue::Tags(tags), Operand::Json(other)) => any_holds(*tags, |tag| is_text(other, tag, work)),
            (EventValue::Json(value), Operand::Json(other)) => compare::same(value, other, work),
            _ => Ok(false),
        }
    }

    pub(super) fn compared_with(&self, operand: &Operand, work: &mut Work<'_, '_>) -> Result<Option<Ordering>, Halt> {
        match (self, operand) {
            (EventValue::Time(time), Operand::Time(other)) => Ok(Some(time.cmp(other))),
            (EventValue::Text(text), Operand::Json(Value::String(other))) => {
                compare::order_texts(text, other, work).map(Some)
            }
            (EventValue::Json(value), Operand::Json(other)) => compare::order(value, other, work),
            _ => Ok(None),
        }
    }

    pub(super) fn contains(&self, part: &Value, work: &mut Work<'_, '_>) -> Result<bool, Halt> {
        match self {
            EventValue::Tags(tags) => any_holds(*tags, |tag| is_text(part, tag, work)),
            EventValue::Json(Value::Array(items)) => compare::is_among(part, items, work),
            _ => match (self.text(), part.as_str()) {
                (Some(text), Some(part)) => {
                    work.charge(text.len())?;
                    Ok(text.contains(part))
                }
                _ => Ok(false),
            },
        }
    }
}

fn is_text(value: &Value, text: &str, work: &mut Work<'_, '_>) -> Result<bool, Halt> {
    value.as_str().map_or(Ok(false), |value| compare::same_text(value, text, work))
}
