//! The fields that a filter may ask about, and what is known of them.

use std::cmp::Ordering;

use chrono::{DateTime, Utc};
use serde_json::Value;

use super::{Operand, compare};
use crate::domain::matching::Subject;
use crate::domain::path::JsonPath;
use crate::domain::{limits, text};

/// A field of an event.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Field {
    Type,
    Time,
    Tags,
    Label(String),
    Payload,
    PayloadAt(JsonPath),
}

impl Field {
    /// Reads a field's name. A label's name is all that follows, dots included.
    pub(super) fn parse(name: &str) -> Result<Self, String> {
        match name {
            "type" => Ok(Self::Type),
            "time" => Ok(Self::Time),
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
            None => Err("is neither type, time, tags, labels.<name>, payload, payload.<path>, nor an operator".into()),
        }
    }

    /// What an event has there.
    pub(super) fn of<'a>(&self, subject: &'a Subject<'_>) -> Known<'a> {
        let text = |found: Option<&'a str>| found.map_or(Known::Nothing, Known::Text);
        let json = |found: Option<&'a Value>| found.map_or(Known::Nothing, Known::Json);
        match self {
            Self::Type => text(subject.event_type),
            Self::Time => Known::Time(subject.time),
            Self::Tags => Known::Tags(subject.tags),
            Self::Label(name) => text(subject.labels.get(name).map(String::as_str)),
            Self::Payload => json(subject.payload()),
            Self::PayloadAt(path) => json(subject.payload().and_then(|payload| path.find(payload))),
        }
    }
}

/// What is known of a field.
pub(super) enum Known<'a> {
    Nothing,
    Text(&'a str),
    Time(DateTime<Utc>),
    Tags(&'a [String]),
    Json(&'a Value),
}

impl<'a> Known<'a> {
    pub(super) fn exists(&self) -> bool {
        match self {
            Known::Nothing => false,
            Known::Tags(tags) => !tags.is_empty(),
            Known::Text(_) | Known::Time(_) | Known::Json(_) => true,
        }
    }

    pub(super) fn text(&self) -> Option<&'a str> {
        match self {
            Known::Text(text) => Some(text),
            Known::Json(value) => value.as_str(),
            Known::Nothing | Known::Time(_) | Known::Tags(_) => None,
        }
    }

    pub(super) fn equals(&self, operand: &Operand) -> bool {
        match (self, operand) {
            (Known::Time(time), Operand::Time(other)) => time == other,
            (Known::Text(text), Operand::Json(other)) => other.as_str() == Some(text),
            (Known::Tags(tags), Operand::Json(Value::Array(others))) => {
                tags.len() == others.len() && tags.iter().zip(others).all(|(tag, other)| other.as_str() == Some(tag))
            }
            (Known::Tags(tags), Operand::Json(other)) => tags.iter().any(|tag| other.as_str() == Some(tag)),
            (Known::Json(value), Operand::Json(other)) => compare::same(value, other),
            _ => false,
        }
    }

    pub(super) fn compared_with(&self, operand: &Operand) -> Option<Ordering> {
        match (self, operand) {
            (Known::Time(time), Operand::Time(other)) => Some(time.cmp(other)),
            (Known::Text(text), Operand::Json(Value::String(other))) => Some((*text).cmp(other)),
            (Known::Json(value), Operand::Json(other)) => compare::order(value, other),
            _ => None,
        }
    }

    pub(super) fn contains(&self, part: &Value) -> bool {
        match self {
            Known::Tags(tags) => tags.iter().any(|tag| part.as_str() == Some(tag)),
            Known::Json(Value::Array(items)) => items.iter().any(|item| compare::same(item, part)),
            _ => match (self.text(), part.as_str()) {
                (Some(text), Some(part)) => text.contains(part),
                _ => false,
            },
        }
    }
}
