//! The work of a check, counted in steps.
//!
//! Time would be the wrong measure: the same payload must be accepted or refused whether the server is busy or not. And
//! what a schema costs cannot be computed from the schema alone: a part that is applied twice to each member of an object
//! takes 2^n steps for a payload that is n deep.
//!
//! Therefore a counting keyword is put in front of every part of a schema before it is compiled: the part becomes
//! `{"if": {"!steps": n}, "then": part}`. The condition is always true, and the library must evaluate it before it
//! applies the part. The keyword charges what the keywords of the part may cost for the value at hand. When no steps are
//! left, it unwinds out of the library, which has no other way to be stopped, and the check ends without a result. A step
//! takes 10 to 400 nanoseconds.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use jsonschema::{Keyword, ValidationError};
use serde_json::{Map, Value};

use super::patterns::Patterns;

/// The name of the counting keyword.
pub(super) const KEYWORD: &str = "!steps";

/// The number of bytes that are compared in one step.
const BYTES_PER_STEP: u64 = 16;

/// The number of characters that are counted in one step.
const CHARS_PER_STEP: u64 = 64;

/// The cost of a value in an array whose items must be unique: small arrays are compared item by item.
const UNIQUE_FACTOR: u64 = 8;

/// What a step is worth of the product of a text's bytes and a pattern's KiB.
const PATTERN_BYTES_PER_STEP: u64 = 4;

thread_local! {
    /// The steps that the check on this thread has left.
    static LEFT: Cell<u64> = const { Cell::new(0) };
}

/// The error of a check that has used up its steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OutOfSteps;

/// The steps that checks may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Steps {
    left: u64,
}

impl Steps {
    pub(crate) fn of(steps: u64) -> Self {
        Steps { left: steps }
    }

    /// Returns whether no steps are left.
    pub(crate) fn are_used_up(self) -> bool {
        self.left == 0
    }

    /// Takes steps for work outside of a check.
    pub(super) fn take(&mut self, steps: u64) -> Result<(), OutOfSteps> {
        self.left = self.left.checked_sub(steps).ok_or(OutOfSteps)?;
        Ok(())
    }

    /// Runs a check on this thread. It may take the steps that are left.
    pub(super) fn run<T>(&mut self, check: impl FnOnce() -> T) -> Result<T, OutOfSteps> {
        LEFT.set(self.left);
        // The check only reads. What it leaves half done is its own, and dropped.
        let outcome = catch_unwind(AssertUnwindSafe(check));
        self.left = LEFT.replace(0);
        outcome.map_err(|panic| {
            if !panic.is::<OutOfSteps>() {
                resume_unwind(panic);
            }
            self.left = 0;
            OutOfSteps
        })
    }
}

/// Takes steps from those that are left, or ends the check.
fn charge(steps: u64) {
    let left = LEFT.get();
    match left.checked_sub(steps) {
        Some(rest) => LEFT.set(rest),
        None => resume_unwind(Box::new(OutOfSteps)),
    }
}

/// What applying one part of a schema to a value costs, without what the parts in it cost.
#[derive(Debug, Clone, Default)]
pub(super) struct Costs {
    /// For any value.
    fixed: u64,
    /// For an object, whatever is in it.
    object: u64,
    /// Whether the members of an object are looked at.
    reads_members: bool,
    /// The KiB of all patterns that the names of members are matched with.
    name_patterns: u64,
    /// The KiB of the pattern that a string is matched with.
    pattern: u64,
    counts_characters: bool,
    is_unique: bool,
}

impl Costs {
    pub(super) fn of(part: &Map<String, Value>, patterns: &Patterns) -> Self {
        let length = |keyword: &str| match part.get(keyword) {
            Some(Value::Array(items)) => items.len() as u64,
            Some(Value::Object(members)) => members.len() as u64,
            _ => 0,
        };
        let bytes = |keyword: &str| part.get(keyword).map_or(0, |value| value.to_string().len() as u64);
        let has = |keyword: &str| part.contains_key(keyword);
        let dependent = part.get("dependentRequired").and_then(Value::as_object).into_iter().flat_map(Map::values);
        let dependent: u64 = dependent.filter_map(Value::as_array).map(|names| names.len() as u64 + 1).sum();
        let names = part.get("patternProperties").and_then(Value::as_object).into_iter().flat_map(Map::keys);
        Costs {
            fixed: 1 + (bytes("enum") + bytes("const")) / BYTES_PER_STEP,
            object: length("required") + length("properties") + length("dependentSchemas") + dependent,
            reads_members: [
                "properties",
                "patternProperties",
                "additionalProperties",
                "propertyNames",
                "unevaluatedProperties",
            ]
            .into_iter()
            .any(has),
            name_patterns: names.map(|pattern| patterns.size(pattern) as u64).sum(),
            pattern: part.get("pattern").and_then(Value::as_str).map_or(0, |pattern| patterns.size(pattern) as u64),
            counts_characters: has("minLength") || has("maxLength"),
            is_unique: part.get("uniqueItems") == Some(&Value::Bool(true)),
        }
    }

    /// Takes the steps for a value.
    fn charge(&self, value: &Value) {
        match value {
            Value::String(text) => {
                let bytes = text.len() as u64;
                let counted = if self.counts_characters { bytes / CHARS_PER_STEP } else { 0 };
                // Whoever explains a mistake matches the names of members as strings.
                let patterns = self.pattern + self.name_patterns;
                charge(self.fixed + counted + (bytes + 1) * patterns / PATTERN_BYTES_PER_STEP);
            }
            Value::Object(members) => {
                let read = if self.reads_members { members.len() as u64 } else { 0 };
                charge(self.fixed + self.object + read);
                if self.name_patterns > 0 {
                    let names: u64 = members.keys().map(|name| name.len() as u64 + 1).sum();
                    charge(names.saturating_mul(self.name_patterns) / PATTERN_BYTES_PER_STEP);
                }
            }
            Value::Array(items) => {
                charge(self.fixed + items.len() as u64 / BYTES_PER_STEP);
                if self.is_unique {
                    items.iter().for_each(charge_for_comparison);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => charge(self.fixed),
        }
    }
}

/// Takes the steps for comparing a value with others. The depth of payloads is limited, so this may recurse.
fn charge_for_comparison(value: &Value) {
    match value {
        Value::Array(items) => items.iter().for_each(charge_for_comparison),
        Value::Object(members) => members.iter().for_each(|(name, value)| {
            charge(name.len() as u64 / BYTES_PER_STEP * UNIQUE_FACTOR);
            charge_for_comparison(value);
        }),
        Value::String(text) => charge(text.len() as u64 / BYTES_PER_STEP * UNIQUE_FACTOR),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
    charge(UNIQUE_FACTOR);
}

/// The counting keyword of one part.
pub(super) struct CountingKeyword(pub(super) Arc<Vec<Costs>>, pub(super) usize);

impl<'i> Keyword<'i> for CountingKeyword {
    fn validate(&self, value: &'i Value) -> Result<(), ValidationError<'i>> {
        self.0[self.1].charge(value);
        Ok(())
    }

    fn is_valid(&self, value: &'i Value) -> bool {
        self.0[self.1].charge(value);
        true
    }
}
