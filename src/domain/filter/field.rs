//! The fields that a filter may ask about, and what is known of them.

use std::cmp::Ordering;

use chrono::{DateTime, Utc};
use serde_json::Value;

use super::{Operand, all_hold, any_holds, compare};
use crate::domain::matching::{Halt, Subject, Work};
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
    pub(super) fn of<'a>(&self, subject: &'a Subject<'_>, work: &mut Work<'_, '_>) -> Result<Known<'a>, Halt> {
        let text = |found: Option<&'a str>| found.map_or(Known::Nothing, Known::Text);
        let json = |found: Option<&'a Value>| found.map_or(Known::Nothing, Known::Json);
        Ok(match self {
            Self::Type => text(subject.event_type),
            Self::Time => Known::Time(subject.time),
            Self::Tags => Known::Tags(subject.tags),
            Self::Label(name) => {
                work.look_at(name.len())?;
                text(subject.labels.get(name).map(String::as_str))
            }
            Self::Payload => json(subject.payload(work.allowance())?),
            Self::PayloadAt(path) => {
                work.look_at(path.bytes())?;
                json(subject.payload(work.allowance())?.and_then(|payload| path.find(payload)))
            }
        })
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

    pub(super) fn equals(&self, operand: &Operand, work: &mut Work<'_, '_>) -> Result<bool, Halt> {
        match (self, operand) {
            (Known::Time(time), Operand::Time(other)) => Ok(time == other),
            (Known::Text(text), Operand::Json(other)) => is_text(other, text, work),
            (Known::Tags(tags), Operand::Json(Value::Array(others))) => Ok(tags.len() == others.len()
                && all_hold(tags.iter().zip(others), |(tag, other)| is_text(other, tag, work))?),
            (Known::Tags(tags), Operand::Json(other)) => any_holds(*tags, |tag| is_text(other, tag, work)),
            (Known::Json(value), Operand::Json(other)) => compare::same(value, other, work),
            _ => Ok(false),
        }
    }

    pub(super) fn compared_with(&self, operand: &Operand, work: &mut Work<'_, '_>) -> Result<Option<Ordering>, Halt> {
        match (self, operand) {
            (Known::Time(time), Operand::Time(other)) => Ok(Some(time.cmp(other))),
            (Known::Text(text), Operand::Json(Value::String(other))) => {
                compare::order_texts(text, other, work).map(Some)
            }
            (Known::Json(value), Operand::Json(other)) => compare::order(value, other, work),
            _ => Ok(None),
        }
    }

    pub(super) fn contains(&self, part: &Value, work: &mut Work<'_, '_>) -> Result<bool, Halt> {
        match self {
            Known::Tags(tags) => any_holds(*tags, |tag| is_text(part, tag, work)),
            Known::Json(Value::Array(items)) => compare::is_among(part, items, work),
            _ => match (self.text(), part.as_str()) {
                (Some(text), Some(part)) => {
                    work.look_at(text.len())?;
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
