//! What a team sends to declare an event type.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::schema::{EventSchema, Explainer, Steps};
use crate::domain::input::RawFields;
use crate::domain::invalid::Invalid;
use crate::domain::json::RawJson;
use crate::domain::limits;

/// The declaration of an event type, without its name.
#[derive(Debug, Clone)]
pub(crate) struct Declaration {
    pub description: Option<String>,
    /// The schema, as it was sent and parsed. Without one, any payload is accepted.
    schema: Option<(RawJson, Value)>,
    /// The examples, as they were sent and parsed.
    examples: Option<(RawJson, Vec<Value>)>,
}

impl Declaration {
    /// Reads the fields of a declaration. Errors are collected in `fields`.
    pub(crate) fn read(fields: &mut RawFields<'_>) -> Self {
        let description = fields.text_or_empty("description", limits::DESCRIPTION_CHARS);
        let schema = fields.parsed_json("schema", limits::SCHEMA_BYTES, limits::SCHEMA_DEPTH);
        let examples = fields.parsed_json("examples", limits::TYPE_EXAMPLES_BYTES, limits::JSON_DEPTH);
        let examples = examples.and_then(|(raw, value)| match value {
            Value::Array(examples) if examples.len() <= limits::TYPE_EXAMPLES => Some((raw, examples)),
            _ => {
                fields.refuse("examples", format!("must be a list of at most {} payloads", limits::TYPE_EXAMPLES));
                None
            }
        });
        Declaration { description, schema, examples }
    }

    pub(crate) fn schema(&self) -> Option<&RawJson> {
        self.schema.as_ref().map(|(raw, _)| raw)
    }

    pub(crate) fn examples(&self) -> Option<&RawJson> {
        self.examples.as_ref().map(|(raw, _)| raw)
    }

    /// Compiles the schema and checks the examples. Needs a deep stack.
    pub(crate) fn compile(&self) -> Result<Option<EventSchema>, Vec<Invalid>> {
        let Some((_, schema)) = &self.schema else { return Ok(None) };
        let inside = |errors: Vec<Invalid>| -> Vec<Invalid> {
            errors.into_iter().map(|invalid| invalid.inside("schema")).collect()
        };
        let schema = EventSchema::parse(schema).map_err(inside)?;
        let mut errors = Vec::new();
        let mut steps = Steps::of(limits::SCHEMA_STEPS);
        let (mut explainer, mut explaining) = (Explainer::new(&schema), Steps::of(limits::SCHEMA_STEPS));
        for (index, example) in self.examples.iter().flat_map(|(_, examples)| examples).enumerate() {
            let root = format!("examples[{index}]");
            match schema.check(example, &mut steps) {
                Ok(true) => {}
                Ok(false) => {
                    let mistakes = explainer.explain(example, &mut explaining);
                    errors.extend(mistakes.iter().map(|mistake| mistake.for_publisher(&root)));
                }
                Err(_) => errors.push(Invalid::new(root, TOO_MANY_STEPS)),
            }
        }
        drop(explainer);
        if errors.is_empty() { Ok(Some(schema)) } else { Err(errors) }
    }
}

/// The reason why a payload is refused whose check takes too long.
pub(crate) const TOO_MANY_STEPS: &str = "takes too many steps to check against the schema";

/// Returns what identifies the text of a schema.
pub(crate) fn digest(schema: &RawJson) -> String {
    URL_SAFE_NO_PAD.encode(Sha256::digest(schema.as_str()))
}
