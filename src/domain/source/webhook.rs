//! A webhook: a foreign request as it came.

use serde_json::value::RawValue;

use super::check::Rejection;
use crate::domain::limits;

/// A foreign request, with its raw body.
pub(crate) struct Webhook<'a> {
    /// The names and values of all headers.
    pub headers: Vec<(&'a str, &'a [u8])>,
    pub body: &'a [u8],
}

impl<'a> Webhook<'a> {
    /// Returns the value of a header that must be given once.
    pub(super) fn required_header(&self, name: &str) -> Result<&'a str, Rejection> {
        let mut values = self.values_of(name);
        let value = values.next().ok_or_else(|| Rejection::Missing(name.to_owned()))?;
        let text = str::from_utf8(value).ok().filter(|text| text.len() <= limits::SIGNATURE_HEADER_BYTES);
        text.filter(|_| values.next().is_none()).ok_or_else(|| Rejection::Malformed(name.to_owned()))
    }

    /// Returns the first value of a header, or `None` if there is none that is text.
    pub(super) fn header(&self, name: &str) -> Option<&'a str> {
        str::from_utf8(self.values_of(name).next()?).ok().map(str::trim)
    }

    /// Returns the type of the body, without its parameters.
    pub(super) fn media_type(&self) -> Option<String> {
        let value = self.header("content-type")?.split(';').next()?;
        Some(value.trim().to_ascii_lowercase()).filter(|value| !value.is_empty())
    }

    /// Returns the body if it is JSON. It is if its type says so. Some senders give no type, or that of plain text;
    /// then an object or a list counts as JSON, and a single word or number does not.
    pub(super) fn json(&self) -> Option<&'a RawValue> {
        let parsed: &RawValue = serde_json::from_slice(self.body).ok()?;
        let is_json = match self.media_type().as_deref() {
            Some("application/json" | "text/json") => true,
            Some(other) if other.ends_with("+json") => true,
            None | Some("text/plain") => parsed.get().starts_with(['{', '[']),
            Some(_) => false,
        };
        is_json.then_some(parsed)
    }

    fn values_of(&self, name: &str) -> impl Iterator<Item = &'a [u8]> {
        self.headers.iter().filter(move |(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| *value)
    }
}
