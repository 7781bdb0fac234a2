//! Conditions on what is known of an event, written as JSON:
//!
//! ```json
//! {"payload.amount": {"$gt": 10}, "labels.region": {"$in": ["eu", "us"]}}
//! ```
//!
//! A field is `type`, `time`, `tags`, `labels.<name>`, `payload` or `payload.<path>`; a bare
//! value stands for `$eq`. All fields of an object and all operators of a field must hold;
//! `$and` and `$or` take lists of filters, `$not` takes a filter, or operators on a field.
//!
//! What is compared:
//! - Numbers are compared with numbers, by their value: 1 equals 1.0, and integers are exact
//!   at any size that JSON carries as an integer. Strings are compared with strings, by code
//!   point. `time` is compared as a moment. All else is unordered, so `$gt` and its like fail.
//! - `tags` equal a list if they are that list, in that order; and a string, if one of them is
//!   it. So `$in` finds any of several tags. They are there if there is at least one.
//! - A list in the payload equals a list of the same items; `$contains` looks for one of them.
//! - `$neq` and `$nin` are true wherever `$eq` and `$in` are false. So of a field that is not
//!   there only `$neq`, `$nin`, `$not` and `$exists: false` are true.
//! - `payload` itself is always there: it is null if the event has none.
//!
//! What it costs is counted in bytes looked at, before they are looked at ([`Work`]); a filter
//! that would exceed its budget has no result. There are no regular expressions.

mod compare;
mod field;
mod parse;

use serde_json::Value;

use self::compare::Relation;
use self::field::{Field, Known};
use super::matching::{Halt, STEP_BYTES, Subject, Work};

/// A filter, checked and ready.
#[derive(Debug, Clone, PartialEq)]
pub struct Filter {
    /// As it was given.
    source: Value,
    root: Node,
}

impl Filter {
    /// Returns whether all that it asks for is true of an event.
    pub fn matches(&self, subject: &Subject<'_>, work: &mut Work<'_, '_>) -> Result<bool, Halt> {
        self.root.holds(subject, work)
    }

    /// The filter as it was given.
    pub fn to_json(&self) -> &Value {
        &self.source
    }
}

/// A part of a filter.
#[derive(Debug, Clone, PartialEq)]
enum Node {
    All(Vec<Node>),
    Any(Vec<Node>),
    Not(Box<Node>),
    Condition(Field, Test),
}

impl Node {
    fn holds(&self, subject: &Subject<'_>, work: &mut Work<'_, '_>) -> Result<bool, Halt> {
        match self {
            Node::All(parts) => all_hold(parts, |part| part.holds(subject, work)),
            Node::Any(parts) => any_holds(parts, |part| part.holds(subject, work)),
            Node::Not(part) => Ok(!part.holds(subject, work)?),
            Node::Condition(field, test) => {
                work.look_at(STEP_BYTES)?;
                test.holds(&field.of(subject, work)?, work)
            }
        }
    }
}

/// Returns whether something is true of at least one item. Ends at the first of which it is.
fn any_holds<T>(
    items: impl IntoIterator<Item = T>,
    mut holds: impl FnMut(T) -> Result<bool, Halt>,
) -> Result<bool, Halt> {
    for item in items {
        if holds(item)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns whether something is true of every item. Ends at the first of which it is not.
fn all_hold<T>(
    items: impl IntoIterator<Item = T>,
    mut holds: impl FnMut(T) -> Result<bool, Halt>,
) -> Result<bool, Halt> {
    Ok(!any_holds(items, |item| Ok(!holds(item)?))?)
}

/// What must be true of a field. `$neq` and `$nin` are these, turned round.
#[derive(Debug, Clone, PartialEq)]
enum Test {
    OneOf(Vec<Operand>),
    Is(Relation, Operand),
    Exists(bool),
    StartsWith(String),
    EndsWith(String),
    Contains(Value),
}

/// What a field is compared with.
#[derive(Debug, Clone, PartialEq)]
enum Operand {
    Json(Value),
    Time(chrono::DateTime<chrono::Utc>),
}

impl Test {
    fn holds(&self, known: &Known<'_>, work: &mut Work<'_, '_>) -> Result<bool, Halt> {
        match self {
            Test::OneOf(operands) => any_holds(operands, |operand| known.equals(operand, work)),
            Test::Is(relation, operand) => {
                let ordering = known.compared_with(operand, work)?;
                Ok(ordering.is_some_and(|ordering| relation.admits(ordering)))
            }
            Test::Exists(wanted) => Ok(known.exists() == *wanted),
            Test::StartsWith(start) => {
                work.look_at(start.len())?;
                Ok(known.text().is_some_and(|text| text.starts_with(start)))
            }
            Test::EndsWith(end) => {
                work.look_at(end.len())?;
                Ok(known.text().is_some_and(|text| text.ends_with(end)))
            }
            Test::Contains(part) => known.contains(part, work),
        }
    }
}

#[cfg(test)]
mod tests;
