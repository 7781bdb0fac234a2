//! The response to a webhook that was accepted.

use serde_json::{Value, json};

use crate::domain::input::Fields;
use crate::domain::invalid::Invalid;
use crate::domain::limits;

/// The response to a webhook that was accepted.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Respond {
    pub status: u16,
    /// The body. `None` means that there is none.
    pub body: Option<String>,
    pub content_type: String,
}

const DEFAULT_CONTENT_TYPE: &str = "text/plain; charset=utf-8";

/// Statuses whose responses have no body.
const WITHOUT_BODY: [u16; 2] = [204, 205];

impl Default for Respond {
    /// Returns a response that says that the webhook will be processed later.
    fn default() -> Self {
        Respond { status: 202, body: None, content_type: DEFAULT_CONTENT_TYPE.into() }
    }
}

impl Respond {
    pub(super) fn parse(value: &Value) -> Result<Self, Vec<Invalid>> {
        let object = value.as_object().ok_or_else(|| vec![Invalid::new("", "must be an object with a status")])?;
        let mut fields = Fields::of_object(object);
        let default = Self::default();
        let respond = Respond {
            status: fields.integer("status", limits::RESPOND_STATUS).unwrap_or(default.status),
            body: fields.text("body", limits::RESPOND_BODY_CHARS),
            content_type: fields.parse_text("content_type", check_content_type).unwrap_or(default.content_type),
        };
        if respond.body.is_some() && WITHOUT_BODY.contains(&respond.status) {
            fields.refuse("body", format!("must not be given with the status {}", respond.status));
        }
        fields.finish_object().map(|()| respond)
    }

    pub(super) fn to_json(&self) -> Value {
        json!({"status": self.status, "body": self.body, "content_type": self.content_type})
    }
}

fn check_content_type(text: &str) -> Result<String, String> {
    let is_fine = text.contains('/')
        && text.len() <= limits::CONTENT_TYPE_CHARS
        && text.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    match is_fine {
        true => Ok(text.to_owned()),
        false => Err(format!("must be a media type of at most {} characters", limits::CONTENT_TYPE_CHARS)),
    }
}
