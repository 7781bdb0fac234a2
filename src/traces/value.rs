//! Values of attributes.

use std::borrow::Cow;

/// The maximum number of bytes of a text; longer ones are cut.
const MAX_TEXT_BYTES: usize = 256;

/// The value of an attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Value {
    Text(Cow<'static, str>),
    Number(i64),
    Truth(bool),
}

impl From<&'static str> for Value {
    fn from(text: &'static str) -> Self {
        Value::Text(Cow::Borrowed(text))
    }
}

impl From<String> for Value {
    fn from(mut text: String) -> Self {
        text.truncate(text.floor_char_boundary(MAX_TEXT_BYTES));
        Value::Text(Cow::Owned(text))
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Value::Number(number)
    }
}

impl From<bool> for Value {
    fn from(truth: bool) -> Self {
        Value::Truth(truth)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_between_characters() {
        let Value::Text(text) = Value::from("é".repeat(1_000)) else { unreachable!("it is text") };
        assert_eq!(text, "é".repeat(128));
        let Value::Text(text) = Value::from(format!("a{}", "é".repeat(1_000))) else { unreachable!("it is text") };
        assert_eq!(text.len(), 255);
    }
}
