//! Filters: conditions on an event, written as JSON:
//!
//! ```json
//! {"payload.amount": {"$gt": 10}, "labels.region": {"$in": ["eu", "us"]}}
//! ```
//!
//! A field is `event_type`, `created_at`, `tags`, `labels.<name>`, `payload` or `payload.<path>`. A bare
//! value means `$eq`. All fields of an object and all operators of a field must hold. `$and` and
//! `$or` take lists of filters; `$not` takes a filter, or operators on a field.
//!
//! How values are compared:
//! - Numbers are compared with numbers, by value: 1 equals 1.0, and integers are exact at any size
//!   that JSON carries as an integer. Strings are compared with strings, by code point. `created_at` is
//!   compared as a point in time. All other pairs have no order, so `$gt`, `$gte`, `$lt` and `$lte`
//!   are false for them.
//! - `tags` equal a list if they have the same items in the same order. They equal a string if one
//!   of the tags is that string; `$in` therefore matches any of several tags. They exist if there
//!   is at least one tag.
//! - A list in the payload equals a list with the same items; `$contains` tests for one item.
//! - `$neq` and `$nin` are the negations of `$eq` and `$in`. For a missing field, only `$neq`,
//!   `$nin`, `$not` and `$exists: false` are true.
//! - `payload` always exists: it is null if the event has none.
//!
//! The cost of a filter is counted in bytes read, before they are read ([`Work`]). A filter that
//! would exceed its budget has no result. There are no regular expressions.

mod compare;
mod field;
mod parse;

use serde_json::Value;

use self::compare::Relation;
use self::field::{EventValue, Field};
use super::matching::{Halt, STEP_BYTES, Subject, Work};

/// A parsed and validated filter.
#[derive(Debug, Clone, PartialEq)]
pub struct Filter {
    /// The JSON that the filter was parsed from.
    source: Value,
    root: Node,
}

impl Filter {
    /// Returns whether the filter matches an event, or why it has no result.
    pub fn matches(&self, subject: &Subject<'_>, work: &mut Work<'_, '_>) -> Result<bool, Halt> {
        self.root.holds(subject, work)
    }

    /// Returns the JSON that the filter was parsed from.
    pub fn to_json(&self) -> &Value {
        &self.source
    }
}

/// A node of the filter's expression tree.
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
                work.charge(STEP_BYTES)?;
                test.holds(&field.of(subject, work)?, work)
            }
        }
    }
}

/// Returns whether `holds` is true for at least one item. Stops at the first one.
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

/// Returns whether `holds` is true for every item. Stops at the first item for which it is false.
fn all_hold<T>(
    items: impl IntoIterator<Item = T>,
    mut holds: impl FnMut(T) -> Result<bool, Halt>,
) -> Result<bool, Halt> {
    Ok(!any_holds(items, |item| Ok(!holds(item)?))?)
}

/// A test of one field. `$neq` and `$nin` are parsed as a [`Node::Not`] around `OneOf`.
#[derive(Debug, Clone, PartialEq)]
enum Test {
    OneOf(Vec<Operand>),
    Is(Relation, Operand),
    Exists(bool),
    StartsWith(String),
    EndsWith(String),
    Contains(Value),
}

/// The value that a field is compared with.
#[derive(Debug, Clone, PartialEq)]
enum Operand {
    Json(Value),
    Time(chrono::DateTime<chrono::Utc>),
}

impl Test {
    fn holds(&self, value: &EventValue<'_>, work: &mut Work<'_, '_>) -> Result<bool, Halt> {
        match self {
            Test::OneOf(operands) => any_holds(operands, |operand| value.equals(operand, work)),
            Test::Is(relation, operand) => {
                let ordering = value.compared_with(operand, work)?;
                Ok(ordering.is_some_and(|ordering| relation.admits(ordering)))
            }
            Test::Exists(wanted) => Ok(value.exists() == *wanted),
            Test::StartsWith(start) => {
                work.charge(start.len())?;
                Ok(value.text().is_some_and(|text| text.starts_with(start)))
            }
            Test::EndsWith(end) => {
                work.charge(end.len())?;
                Ok(value.text().is_some_and(|text| text.ends_with(end)))
            }
            Test::Contains(part) => value.contains(part, work),
        }
    }
}

#[cfg(test)]
mod tests;
