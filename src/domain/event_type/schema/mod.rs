//! The schema of an event type: JSON Schema, draft 2020-12.
//!
//! [`EventSchema::parse`] checks and compiles a schema, [`EventSchema::check`] checks a payload, and an [`Explainer`]
//! finds out what is wrong with one. A library does the work. [`document`], [`references`] and [`patterns`] decide which
//! schemas it may be given, and [`steps`] how much work it may do.

mod document;
mod explain;
mod patterns;
mod references;
mod steps;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use jsonschema::paths::Location;
use jsonschema::{Keyword, Registry, ValidationError, Validator};
use serde_json::{Map, Value};

pub(crate) use explain::{Explainer, Mistake};
pub(crate) use steps::{OutOfSteps, Steps};

use self::document::Document;
use self::references::ADDRESS;
use self::steps::{Costs, CountingKeyword, KEYWORD};
use crate::domain::invalid::Invalid;
use crate::domain::json::nests_deeper_than;
use crate::domain::limits;

/// The stack that the check of any payload against any schema needs, and that of a schema itself, in bytes.
pub(crate) const DEEP_STACK_BYTES: usize = 32 * 1024 * 1024;

/// The number of levels, of a payload times those of a schema, that fit on any stack.
const SHALLOW_LEVELS: usize = 128;

/// A schema that was checked and compiled.
pub(crate) struct EventSchema {
    document: Document,
    costs: Arc<Vec<Costs>>,
    validator: Validator,
}

impl std::fmt::Debug for EventSchema {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("EventSchema").field("parts", &self.document.parts.len()).finish_non_exhaustive()
    }
}

impl EventSchema {
    /// Checks and compiles a schema. The errors name fields of the schema. May take some milliseconds, and needs a
    /// deep stack.
    pub(crate) fn parse(schema: &Value) -> Result<Self, Vec<Invalid>> {
        let document = Document::read(schema)?;
        // What is wrong is reported in the words of the schema as it was sent.
        jsonschema::draft202012::meta::validate(schema).map_err(|error| vec![refusal(&error)])?;
        let mut document = document;
        let costs: Vec<Costs> = (0..document.parts.len()).map(|part| prepare(&mut document, part)).collect();
        let costs = Arc::new(costs);
        let validator =
            compile(&document.prepared, &costs, &document.prepared).map_err(|error| vec![refusal(&error)])?;
        Ok(EventSchema { document, costs, validator })
    }

    /// Returns whether a payload satisfies the schema.
    pub(crate) fn check(&self, payload: &Value, steps: &mut Steps) -> Result<bool, OutOfSteps> {
        steps.run(|| self.validator.is_valid(payload))
    }

    /// Returns whether a payload can be checked on any stack.
    pub(crate) fn fits_any_stack(&self, payload: &str) -> bool {
        !nests_deeper_than(payload, SHALLOW_LEVELS / self.document.chain.max(1))
    }

    /// Compiles a part of the schema, or a keyword of one, on its own.
    fn compile_alone(&self, part: &Value) -> Option<Validator> {
        compile(&self.document.prepared, &self.costs, part).ok()
    }
}

/// Makes the reference of a part hold wherever the part is compiled. Returns what the part costs.
fn prepare(document: &mut Document, part: usize) -> Costs {
    let target = document.target(part).map(|target| document.reference_to(target));
    let Document { parts, prepared, patterns, .. } = document;
    let map = prepared.pointer_mut(&parts[part].prepared).and_then(Value::as_object_mut);
    let Some(map) = map else { return Costs::default() };
    for keyword in ["$id", "$schema", "$anchor"] {
        map.remove(keyword);
    }
    if let Some(target) = target {
        map.insert("$ref".into(), target.into());
    }
    Costs::of(map, patterns)
}

/// Compiles a part of a schema that is prepared.
fn compile(prepared: &Value, costs: &Arc<Vec<Costs>>, part: &Value) -> Result<Validator, ValidationError<'static>> {
    let costs = costs.clone();
    let registry = Registry::new().add(ADDRESS, prepared)?.prepare()?;
    jsonschema::draft202012::options()
        .with_registry(&registry)
        .with_pattern_options(patterns::engine(limits::PATTERN_KIB))
        .with_keyword(KEYWORD, move |_: &Map<String, Value>, index: &Value, _: Location| {
            let index = index.as_u64().unwrap_or_default() as usize;
            Ok(Box::new(CountingKeyword(costs.clone(), index)) as Box<dyn for<'i> Keyword<'i>>)
        })
        .build(part)
}

/// Returns the error of a schema that the library refuses.
fn refusal(error: &ValidationError<'_>) -> Invalid {
    let field = explain::dotted(error.instance_path().as_str());
    let rule = error.kind().keyword();
    Invalid::new(field, format!("is not a schema of draft 2020-12: it does not satisfy {rule} of the meta-schema"))
}
