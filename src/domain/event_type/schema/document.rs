//! The text of a schema: where its parts are, and what they refer to.
//!
//! A schema comes from outside, and the time that it takes must have a limit. What can be known without a payload is
//! checked here, once, when the schema is stored:
//!
//! - References stay inside the document. Nothing is ever fetched.
//! - No part refers to itself for the same value, because that would never end.
//! - The number of parts that are applied to one value, with all references followed, is limited: ten definitions of
//!   which each names the next one twice would otherwise be a thousand parts.
//!
//! What depends on the payload is limited by [`super::steps`].

use std::collections::HashMap;

use serde_json::{Map, Value, json};

use super::patterns::Patterns;
use super::steps;
use crate::domain::input::shown;
use crate::domain::invalid::Invalid;
use crate::domain::limits;

/// The dialect of all schemas, as `$schema` names it.
const DIALECT: &str = "https://json-schema.org/draft/2020-12/schema";

/// What a keyword contains.
#[derive(Clone, Copy)]
enum Holds {
    Schema,
    List,
    Map,
}

/// What the schemas in a keyword are applied to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Target {
    /// The same value.
    Itself,
    /// Values inside it.
    Inside,
    /// Nothing, unless something refers to them.
    Nothing,
}

/// The keywords that contain schemas.
const WITH_SCHEMAS: [(&str, Holds, Target); 20] = [
    ("allOf", Holds::List, Target::Itself),
    ("anyOf", Holds::List, Target::Itself),
    ("oneOf", Holds::List, Target::Itself),
    ("not", Holds::Schema, Target::Itself),
    ("if", Holds::Schema, Target::Itself),
    ("then", Holds::Schema, Target::Itself),
    ("else", Holds::Schema, Target::Itself),
    ("dependentSchemas", Holds::Map, Target::Itself),
    ("properties", Holds::Map, Target::Inside),
    ("patternProperties", Holds::Map, Target::Inside),
    ("additionalProperties", Holds::Schema, Target::Inside),
    ("unevaluatedProperties", Holds::Schema, Target::Inside),
    ("propertyNames", Holds::Schema, Target::Inside),
    ("items", Holds::Schema, Target::Inside),
    ("prefixItems", Holds::List, Target::Inside),
    ("contains", Holds::Schema, Target::Inside),
    ("unevaluatedItems", Holds::Schema, Target::Inside),
    ("$defs", Holds::Map, Target::Nothing),
    ("definitions", Holds::Map, Target::Nothing),
    ("contentSchema", Holds::Schema, Target::Nothing),
];

/// Keywords of other drafts, and those that make it depend on the caller what a reference means.
const REFUSED: [(&str, &str); 7] = [
    ("$dynamicRef", "is not supported; use $ref"),
    ("$dynamicAnchor", "is not supported; use $anchor"),
    ("$recursiveRef", "is not a keyword of draft 2020-12; use $ref"),
    ("$recursiveAnchor", "is not a keyword of draft 2020-12; use $anchor"),
    ("$vocabulary", "is not supported"),
    ("dependencies", "is not a keyword of draft 2020-12; use dependentRequired or dependentSchemas"),
    ("additionalItems", "is not a keyword of draft 2020-12; use items with prefixItems"),
];

/// One schema of a document: the document itself, or one inside it.
#[derive(Debug)]
pub(super) struct Part {
    /// Its position, as in an error: `properties.id`. Empty for the document.
    pub(super) field: String,
    /// Its position, as a JSON pointer. Empty for the document.
    pointer: String,
    /// Its position in the prepared document, as a JSON pointer, and that of its counting keyword.
    pub(super) prepared: String,
    pub(super) counted: String,
    /// The parts that are applied to the same value.
    pub(super) applied_with: Vec<usize>,
    /// The text of `$ref`, and the part that it names.
    pub(super) reference: Option<(String, usize)>,
    pub(super) has_unevaluated: bool,
}

/// The parts of a schema. The first is the document itself.
#[derive(Debug, Default)]
pub(super) struct Document {
    pub(super) parts: Vec<Part>,
    /// The document with a counting keyword in front of each part.
    pub(super) prepared: Value,
    pub(super) by_pointer: HashMap<String, usize>,
    pub(super) by_anchor: HashMap<String, usize>,
    pub(super) patterns: Patterns,
    /// The longest chain of parts that are applied to the same value.
    pub(super) chain: usize,
    errors: Vec<Invalid>,
}

impl Document {
    /// Reads a schema, or returns what is wrong with it.
    pub(super) fn read(schema: &Value) -> Result<Self, Vec<Invalid>> {
        let mut document = Document::default();
        if !schema.is_object() {
            return Err(vec![Invalid::new("", "must be an object")]);
        }
        (_, document.prepared) = document.add(schema, Position::default());
        document.resolve();
        if document.errors.is_empty() {
            document.measure();
        }
        if document.errors.is_empty() { Ok(document) } else { Err(document.errors) }
    }

    /// Returns the part at a path of keywords in a part, such as `allOf/0`.
    pub(super) fn inner(&self, part: usize, path: &str) -> Option<usize> {
        self.by_pointer.get(&format!("{}/{path}", self.parts[part].pointer)).copied()
    }

    /// Returns a part, prepared. It is a boolean, or an object whose parts are counted.
    pub(super) fn prepared(&self, part: usize) -> Option<&Value> {
        self.prepared.pointer(&self.parts[part].prepared)
    }

    /// Returns the part that `$ref` of a part names.
    pub(super) fn target(&self, part: usize) -> Option<usize> {
        self.parts[part].reference.as_ref().map(|(_, target)| *target)
    }

    pub(super) fn refuse(&mut self, field: &str, reason: impl Into<String>) {
        if self.errors.len() < limits::SCHEMA_ERRORS {
            self.errors.push(Invalid::new(field, reason));
        }
    }

    /// Adds a schema and all schemas in it. Returns it, prepared. The depth of the document is limited, so this may
    /// recurse.
    fn add(&mut self, schema: &Value, position: Position) -> (usize, Value) {
        let index = self.parts.len();
        let Position { field, pointer, prepared } = position;
        let mut inner_schemas = Map::new();
        self.by_pointer.insert(pointer.clone(), index);
        self.parts.push(Part {
            field: field.clone(),
            pointer: pointer.clone(),
            prepared: if schema.is_object() { format!("{prepared}/then") } else { prepared.clone() },
            counted: prepared.clone(),
            applied_with: Vec::new(),
            reference: None,
            has_unevaluated: false,
        });
        let map = match schema {
            Value::Object(map) => map,
            Value::Bool(_) => return (index, schema.clone()),
            _ => {
                self.refuse(&field, "must be an object or a boolean");
                return (index, schema.clone());
            }
        };
        self.check_keywords(index, map, &field);
        let own = Position { field, pointer, prepared: format!("{prepared}/then") };
        for (keyword, holds, target) in WITH_SCHEMAS {
            let Some(value) = map.get(keyword) else { continue };
            let (added, value) = self.add_inner(holds, value, own.member(keyword));
            inner_schemas.insert(keyword.to_owned(), value);
            if target == Target::Itself {
                self.parts[index].applied_with.extend(added);
            }
        }
        let mut prepared = map.clone();
        prepared.extend(inner_schemas);
        (index, json!({"if": {steps::KEYWORD: index}, "then": prepared}))
    }

    /// Adds the schemas in a keyword. Returns them, and the value of the keyword, prepared.
    fn add_inner(&mut self, holds: Holds, value: &Value, position: Position) -> (Vec<usize>, Value) {
        match (holds, value) {
            (Holds::Schema, schema) => {
                let (index, prepared) = self.add(schema, position);
                (vec![index], prepared)
            }
            (Holds::List, Value::Array(schemas)) => {
                let item = |(n, schema)| self.add(schema, position.item(n));
                let (indices, prepared): (Vec<usize>, Vec<Value>) = schemas.iter().enumerate().map(item).unzip();
                (indices, prepared.into())
            }
            (Holds::Map, Value::Object(schemas)) => {
                let mut indices = Vec::with_capacity(schemas.len());
                let member = |(name, schema): (&String, &Value)| {
                    let (index, prepared) = self.add(schema, position.member(name));
                    indices.push(index);
                    (name.clone(), prepared)
                };
                let prepared: Map<String, Value> = schemas.iter().map(member).collect();
                (indices, prepared.into())
            }
            // The library says what it must be.
            _ => (Vec::new(), value.clone()),
        }
    }

    fn check_keywords(&mut self, index: usize, map: &Map<String, Value>, field: &str) {
        for (keyword, reason) in REFUSED {
            if map.contains_key(keyword) {
                self.refuse(&join(field, keyword), reason);
            }
        }
        for keyword in ["$id", "$schema"].into_iter().filter(|keyword| index > 0 && map.contains_key(*keyword)) {
            self.refuse(&join(field, keyword), "may be given only at the top of the schema");
        }
        if let Some(dialect) = map.get("$schema")
            && dialect.as_str().map(|dialect| dialect.trim_end_matches('#')) != Some(DIALECT)
        {
            self.refuse(&join(field, "$schema"), format!("must be {DIALECT}, or left out"));
        }
        if let Some(anchor) = map.get("$anchor").and_then(Value::as_str)
            && self.by_anchor.insert(anchor.to_owned(), index).is_some()
        {
            self.refuse(&join(field, "$anchor"), "is given twice");
        }
        if let Some(reference) = map.get("$ref").and_then(Value::as_str) {
            self.parts[index].reference = Some((reference.to_owned(), 0));
        }
        self.parts[index].has_unevaluated =
            map.contains_key("unevaluatedProperties") || map.contains_key("unevaluatedItems");
        if let Some(pattern) = map.get("pattern").and_then(Value::as_str) {
            self.add_pattern(&join(field, "pattern"), pattern);
        }
        for pattern in map.get("patternProperties").and_then(Value::as_object).into_iter().flat_map(Map::keys) {
            let field = join(&join(field, "patternProperties"), pattern);
            self.add_pattern(&field, pattern);
        }
    }

    fn add_pattern(&mut self, field: &str, pattern: &str) {
        if let Err(reason) = self.patterns.add(pattern) {
            self.refuse(field, reason);
        }
    }
}

/// Where a schema is.
#[derive(Default)]
struct Position {
    /// As in an error.
    field: String,
    /// As a JSON pointer.
    pointer: String,
    /// In the prepared document, as a JSON pointer.
    prepared: String,
}

impl Position {
    fn member(&self, name: &str) -> Position {
        let name_in_pointer = escape(name);
        Position {
            field: join(&self.field, name),
            pointer: format!("{}/{name_in_pointer}", self.pointer),
            prepared: format!("{}/{name_in_pointer}", self.prepared),
        }
    }

    fn item(&self, index: usize) -> Position {
        Position {
            field: format!("{}[{index}]", self.field),
            pointer: format!("{}/{index}", self.pointer),
            prepared: format!("{}/{index}", self.prepared),
        }
    }
}

/// Returns the name of a field inside another.
pub(super) fn join(field: &str, name: &str) -> String {
    if field.is_empty() { shown(name) } else { format!("{field}.{}", shown(name)) }
}

/// Escapes a name for a JSON pointer.
pub(super) fn escape(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}
