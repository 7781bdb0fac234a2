//! Finds out which values of a payload do not satisfy which rules of a schema.
//!
//! The library can list errors, but without a limit: an error for each of 500,000 items, each with the path to it. Here
//! the schema is walked along the payload instead. Each step asks the library whether one part of the schema is
//! satisfied by one value, and goes on where it is not.

use std::borrow::Cow;
use std::collections::HashMap;
use std::iter;

use jsonschema::Validator;
use serde_json::{Map, Value, json};

use super::document::{escape, join};
use super::{EventSchema, KEYWORD, Steps};
use crate::domain::input::shown;
use crate::domain::invalid::Invalid;
use crate::domain::limits;
use crate::domain::redaction::Redaction;

/// The steps that compiling a part of a schema counts for. It takes 0.1 to 2 milliseconds.
const COMPILE_STEPS: u64 = 10_000;

/// The maximum length of a path in a mistake, and of a rule, in characters.
const FIELD_CHARS: usize = 500;
const RULE_CHARS: usize = 100;

/// The keywords that say something about a value on their own.
const ASSERTIONS: [&str; 17] = [
    "type",
    "enum",
    "const",
    "multipleOf",
    "maximum",
    "exclusiveMaximum",
    "minimum",
    "exclusiveMinimum",
    "maxLength",
    "minLength",
    "pattern",
    "maxItems",
    "minItems",
    "uniqueItems",
    "maxProperties",
    "minProperties",
    "dependentRequired",
];

/// The keywords with schemas that are not looked into, each with those that it depends on. The first one is reported.
const COMPOUNDS: [&[&str]; 7] = [
    &["anyOf"],
    &["oneOf"],
    &["not"],
    &["then", "if", "else"],
    &["contains", "minContains", "maxContains"],
    &["propertyNames"],
    &["dependentSchemas"],
];

/// The keywords that depend on all others of their part.
const UNEVALUATED: [&str; 2] = ["unevaluatedProperties", "unevaluatedItems"];

/// One segment of the path to a value.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Segment {
    /// A member whose name is in the schema.
    Declared(String),
    /// A member whose name is only in the payload.
    Other(String),
    Item(usize),
}

impl Segment {
    /// Returns the segment as patterns of redaction name it.
    fn part(&self) -> Cow<'_, str> {
        match self {
            Segment::Declared(name) | Segment::Other(name) => Cow::Borrowed(name),
            Segment::Item(index) => Cow::Owned(index.to_string()),
        }
    }
}

/// A value of a payload that does not satisfy a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mistake {
    path: Vec<Segment>,
    reason: String,
}

impl Mistake {
    /// Returns the mistake as an error for the one who has sent the payload as the field `root`.
    pub(crate) fn for_publisher(&self, root: &str) -> Invalid {
        Invalid::new(self.field(root, shown), self.reason.as_str())
    }

    /// Returns the mistake as an error for somebody who may not read payloads: names that are not in the schema may be
    /// data, and are replaced by `*`.
    pub(crate) fn for_stranger(&self) -> Invalid {
        Invalid::new(self.field("payload", |_| "*".to_owned()), self.reason.as_str())
    }

    /// Returns whether it is about a value that must not be learned.
    pub(crate) fn is_redacted(&self, redaction: &Redaction) -> bool {
        let parts: Vec<Cow<'_, str>> = self.path.iter().map(Segment::part).collect();
        redaction.is_redacted_at(iter::once("payload").chain(parts.iter().map(|part| &**part)))
    }

    fn field(&self, root: &str, other: impl Fn(&str) -> String) -> String {
        let mut field = root.to_owned();
        for segment in &self.path {
            match segment {
                Segment::Declared(name) => field = join(&field, name),
                Segment::Other(name) => field = join(&field, &other(name)),
                Segment::Item(index) => field.push_str(&format!("[{index}]")),
            }
        }
        cut(&field, FIELD_CHARS)
    }
}

/// Explains the mistakes of payloads, all of the same schema.
pub(crate) struct Explainer<'a> {
    schema: &'a EventSchema,
    /// What was compiled so far, by part and keyword.
    compiled: HashMap<(usize, String), Option<Validator>>,
    steps: Steps,
    mistakes: Vec<Mistake>,
    path: Vec<Segment>,
}

impl<'a> Explainer<'a> {
    pub(crate) fn new(schema: &'a EventSchema) -> Self {
        Explainer { schema, compiled: HashMap::new(), steps: Steps::of(0), mistakes: Vec::new(), path: Vec::new() }
    }

    /// Returns the mistakes of a payload that does not satisfy the schema: at least one, and at most
    /// [`limits::PAYLOAD_ERRORS`]. With few steps left, they are less exact.
    pub(crate) fn explain(&mut self, payload: &Value, steps: &mut Steps) -> Vec<Mistake> {
        self.steps = *steps;
        self.explain_part(0, payload);
        *steps = self.steps;
        std::mem::take(&mut self.mistakes)
    }

    /// Explains why a value does not satisfy a part. The depth of payloads and the chains of parts are limited, so this
    /// may recurse.
    fn explain_part(&mut self, part: usize, value: &Value) {
        let before = self.mistakes.len();
        let Some(map) = self.map_of(part) else { return self.report("is not allowed by the schema") };
        self.explain_own(part, map, value);
        self.explain_inside(part, map, value);
        for other in self.applied_with(part, map) {
            if self.fails(other, value) {
                self.explain_part(other, value);
            }
        }
        for keywords in COMPOUNDS.into_iter().filter(|keywords| map.contains_key(keywords[0])) {
            let alone: Map<String, Value> =
                keywords.iter().filter_map(|name| Some(((*name).to_owned(), map.get(*name)?.clone()))).collect();
            if self.fails_alone((part, keywords[0]), value, || alone.into()) {
                self.report(format!("does not satisfy {}", keywords[0]));
            }
        }
        if self.mistakes.len() == before {
            let unevaluated = UNEVALUATED.into_iter().find(|keyword| map.contains_key(*keyword));
            self.report(format!("does not satisfy {}", unevaluated.unwrap_or("the schema")));
        }
    }

    /// Reports the keywords of a part that a value does not satisfy.
    fn explain_own(&mut self, part: usize, map: &Map<String, Value>, value: &Value) {
        if let (Some(Value::Array(required)), Value::Object(members)) = (map.get("required"), value) {
            let missing = required.iter().filter_map(Value::as_str).filter(|name| !members.contains_key(*name));
            for name in missing {
                self.within(Segment::Declared(name.to_owned()), |explainer| explainer.report("is required"));
            }
        }
        for keyword in ASSERTIONS {
            let Some(rule) = map.get(keyword) else { continue };
            if self.fails_alone((part, keyword), value, || json!({keyword: rule})) {
                self.report(format!("does not satisfy {keyword}: {}", cut(&rule.to_string(), RULE_CHARS)));
            }
        }
    }

    /// Explains the values inside a value that do not satisfy their parts.
    fn explain_inside(&mut self, part: usize, map: &Map<String, Value>, value: &Value) {
        match value {
            Value::Object(members) => {
                for (name, member) in members {
                    for (other, is_declared) in self.parts_of_member(part, map, name) {
                        let segment = if is_declared { Segment::Declared } else { Segment::Other };
                        self.explain_if_failing(other, member, segment(name.clone()));
                    }
                }
            }
            Value::Array(items) => {
                let prefix = map.get("prefixItems").and_then(Value::as_array).map_or(0, Vec::len);
                for (index, item) in items.iter().enumerate() {
                    let keyword = if index < prefix { format!("prefixItems/{index}") } else { "items".into() };
                    if let Some(other) = self.schema.document.inner(part, &keyword) {
                        self.explain_if_failing(other, item, Segment::Item(index));
                    }
                }
            }
            _ => {}
        }
    }

    fn explain_if_failing(&mut self, part: usize, value: &Value, segment: Segment) {
        if !self.is_full() && self.fails(part, value) {
            self.within(segment, |explainer| explainer.explain_part(part, value));
        }
    }

    /// Returns the parts that are applied to a member, each with whether the schema names the member.
    fn parts_of_member(&mut self, part: usize, map: &Map<String, Value>, name: &str) -> Vec<(usize, bool)> {
        let mut parts = Vec::new();
        if map.get("properties").is_some_and(|properties| properties.get(name).is_some()) {
            let keyword = format!("properties/{}", escape(name));
            parts.extend(self.schema.document.inner(part, &keyword).map(|other| (other, true)));
        }
        let subject = Value::from(name);
        for pattern in map.get("patternProperties").and_then(Value::as_object).into_iter().flat_map(Map::keys) {
            let key = format!("patternProperties/{}", escape(pattern));
            if self.is_satisfied((part, &key), &subject, || json!({"pattern": pattern})) == Some(true) {
                parts.extend(self.schema.document.inner(part, &key).map(|other| (other, false)));
            }
        }
        if parts.is_empty() && map.contains_key("additionalProperties") {
            parts.extend(self.schema.document.inner(part, "additionalProperties").map(|other| (other, false)));
        }
        parts
    }

    /// Returns the parts that must be satisfied by the same value.
    fn applied_with(&self, part: usize, map: &Map<String, Value>) -> Vec<usize> {
        let all = map.get("allOf").and_then(Value::as_array).map_or(0, Vec::len);
        let all = (0..all).filter_map(|index| self.schema.document.inner(part, &format!("allOf/{index}")));
        all.chain(self.schema.document.target(part)).collect()
    }

    /// Returns a part as it was prepared, or `None` if it is a boolean.
    fn map_of(&self, part: usize) -> Option<&'a Map<String, Value>> {
        self.schema.document.prepared(part)?.as_object()
    }

    /// Returns whether a value is known not to satisfy a part.
    fn fails(&mut self, part: usize, value: &Value) -> bool {
        let schema = self.schema;
        let whole = || schema.document.prepared(part).cloned().unwrap_or_default();
        self.is_satisfied((part, ""), value, whole) == Some(false)
    }

    /// Returns whether a value is known not to satisfy a keyword of a part.
    fn fails_alone(&mut self, key: (usize, &str), value: &Value, alone: impl FnOnce() -> Value) -> bool {
        !self.is_full() && self.is_satisfied(key, value, alone) == Some(false)
    }

    /// Returns whether a value satisfies a schema, or `None` if that takes too much work. `key` identifies the schema.
    fn is_satisfied(&mut self, key: (usize, &str), value: &Value, schema: impl FnOnce() -> Value) -> Option<bool> {
        let key = (key.0, key.1.to_owned());
        if !self.compiled.contains_key(&key) {
            self.steps.take(COMPILE_STEPS).ok()?;
            // The part is charged whole, whichever of its keywords is tried.
            let counted = json!({"if": {KEYWORD: key.0}, "then": schema()});
            let compiled = self.schema.compile_alone(&counted);
            self.compiled.insert(key.clone(), compiled);
        }
        let validator = self.compiled.get(&key)?.as_ref()?;
        self.steps.run(|| validator.is_valid(value)).ok()
    }

    fn within(&mut self, segment: Segment, explain: impl FnOnce(&mut Self)) {
        self.path.push(segment);
        explain(self);
        self.path.pop();
    }

    fn report(&mut self, reason: impl Into<String>) {
        if !self.is_full() {
            self.mistakes.push(Mistake { path: self.path.clone(), reason: reason.into() });
        }
    }

    fn is_full(&self) -> bool {
        self.mistakes.len() == limits::PAYLOAD_ERRORS
    }
}

/// Returns a JSON pointer as the name of a field.
pub(super) fn dotted(pointer: &str) -> String {
    let mut field = String::new();
    for segment in pointer.split('/').skip(1) {
        let name = segment.replace("~1", "/").replace("~0", "~");
        match name.parse::<usize>() {
            Ok(index) => field.push_str(&format!("[{index}]")),
            Err(_) => field = join(&field, &name),
        }
    }
    field
}

/// Returns the beginning of a text.
fn cut(text: &str, chars: usize) -> String {
    match text.char_indices().nth(chars) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
