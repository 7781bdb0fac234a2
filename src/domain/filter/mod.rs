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
//! What it costs is bounded by the size of the filter, which is limited, times the length of
//! the strings and lists that it looks at. There are no regular expressions.

mod compare;
mod field;
mod parse;

use serde_json::Value;

use self::compare::Relation;
use self::field::{Field, Known};
use super::matching::Subject;

/// A filter, checked and ready.
#[derive(Debug, Clone, PartialEq)]
pub struct Filter {
    /// As it was given.
    source: Value,
    root: Node,
}

impl Filter {
    /// Whether all that it asks for is true of an event.
    pub fn matches(&self, subject: &Subject<'_>) -> bool {
        self.root.holds(subject)
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
    fn holds(&self, subject: &Subject<'_>) -> bool {
        match self {
            Node::All(parts) => parts.iter().all(|part| part.holds(subject)),
            Node::Any(parts) => parts.iter().any(|part| part.holds(subject)),
            Node::Not(part) => !part.holds(subject),
            Node::Condition(field, test) => test.holds(&field.of(subject)),
        }
    }
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
    fn holds(&self, known: &Known<'_>) -> bool {
        match self {
            Test::OneOf(operands) => operands.iter().any(|operand| known.equals(operand)),
            Test::Is(relation, operand) => {
                known.compared_with(operand).is_some_and(|ordering| relation.admits(ordering))
            }
            Test::Exists(wanted) => known.exists() == *wanted,
            Test::StartsWith(start) => known.text().is_some_and(|text| text.starts_with(start)),
            Test::EndsWith(end) => known.text().is_some_and(|text| text.ends_with(end)),
            Test::Contains(part) => known.contains(part),
        }
    }
}

#[cfg(test)]
mod tests;
