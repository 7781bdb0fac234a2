//! Query parameters, taken one by one like the fields of a body: what is wrong is gathered,
//! and what nobody asked for is refused.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use actix_web::HttpRequest;
use chrono::{DateTime, Utc};

use super::fields::{MOST_FIELDS, shown};
use crate::domain::invalid::Invalid;
use crate::domain::tags::Tags;
use crate::domain::{limits, text, timestamp, worker_id};
use crate::error::Error;

const NOT_UTF_8: &str = "must be UTF-8, URL-encoded";

/// The parameters of one request.
pub struct Query {
    pairs: Vec<(String, String)>,
    errors: Vec<Invalid>,
}

impl Query {
    /// Reads them.
    pub fn of(request: &HttpRequest) -> Result<Self, Error> {
        let mut query = Query { pairs: Vec::new(), errors: Vec::new() };
        let pairs = request.query_string().split('&').filter(|pair| !pair.is_empty());
        if pairs.clone().nth(MOST_FIELDS).is_some() {
            return Err(Error::invalid("query", format!("must have at most {MOST_FIELDS} parameters")));
        }
        for pair in pairs {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let name = decode(name).ok_or_else(|| Error::invalid("query", NOT_UTF_8))?;
            let value = decode(value).ok_or_else(|| Error::invalid(&*shown(&name), NOT_UTF_8))?;
            if query.pairs.iter().any(|(known, _)| *known == name) {
                query.refuse(shown(&name), "is given twice");
            } else {
                query.pairs.push((name, value));
            }
        }
        Ok(query)
    }

    /// Complains about a parameter.
    pub fn refuse(&mut self, field: impl Into<String>, reason: impl Into<String>) {
        self.errors.push(Invalid::new(field, reason));
    }

    /// Takes a parameter as it stands.
    pub fn raw(&mut self, name: &str) -> Option<String> {
        let index = self.pairs.iter().position(|(known, _)| known == name)?;
        Some(self.pairs.swap_remove(index).1)
    }

    /// Takes a text of 1 to `max` characters.
    pub fn text(&mut self, name: &str, max: usize) -> Option<String> {
        let value = self.raw(name)?;
        let outcome = text::check(&value, max);
        self.checked(name, outcome)?;
        Some(value)
    }

    /// Takes a number within a range.
    pub fn number<T>(&mut self, name: &str, range: RangeInclusive<T>) -> Option<T>
    where
        T: FromStr + PartialOrd + fmt::Display,
    {
        let value = self.raw(name)?;
        match value.parse::<T>() {
            Ok(number) if range.contains(&number) => Some(number),
            _ => {
                self.refuse(name, format!("must be a number between {} and {}", range.start(), range.end()));
                None
            }
        }
    }

    /// Takes a `true` or `false`.
    pub fn boolean(&mut self, name: &str) -> Option<bool> {
        match self.raw(name)?.as_str() {
            "true" => Some(true),
            "false" => Some(false),
            _ => {
                self.refuse(name, "must be true or false");
                None
            }
        }
    }

    /// Takes an RFC 3339 timestamp.
    pub fn timestamp(&mut self, name: &str) -> Option<DateTime<Utc>> {
        let value = self.raw(name)?;
        // A `+` of an offset arrives as a space unless it was encoded; the intent is plain.
        self.checked(name, timestamp::parse(&value.replace(' ', "+")))
    }

    /// Takes the page of a list that goes by id: behind which one, and how many at most.
    pub fn page(&mut self) -> (i64, i64) {
        let after = self.number("after", 0..=i64::MAX).unwrap_or(0);
        (after, self.number("limit", limits::PAGE).unwrap_or(100))
    }

    /// Takes comma-separated tags, at least one: an empty filter would match everything.
    pub fn tags(&mut self, name: &str) -> Option<Tags> {
        let value = self.raw(name)?;
        let outcome = Tags::from_comma_separated(&value);
        let tags = self.checked(name, outcome)?;
        if tags.is_empty() {
            self.refuse(name, "must not be empty");
            return None;
        }
        Some(tags)
    }

    /// Takes a worker's id.
    pub fn worker_id(&mut self, name: &str) -> Option<String> {
        let value = self.raw(name)?;
        let outcome = worker_id::check(&value);
        self.checked(name, outcome)?;
        Some(value)
    }

    /// Takes one word of a closed list.
    pub fn word<T>(&mut self, name: &str, parse: impl Fn(&str) -> Option<T>, list: &str) -> Option<T> {
        let value = self.raw(name)?;
        let parsed = parse(&value);
        if parsed.is_none() {
            self.refuse(name, format!("must be one of {list}"));
        }
        parsed
    }

    /// Insists that a parameter is there.
    pub fn required<T>(&mut self, name: &str, take: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        if self.pairs.iter().any(|(known, _)| known == name) {
            return take(self);
        }
        self.refuse(name, "is required");
        None
    }

    /// Ends the taking: whatever is left is unknown, and all complaints come out.
    pub fn finish(mut self) -> Result<(), Error> {
        let unknown: Vec<String> = self.pairs.iter().map(|(name, _)| shown(name)).collect();
        for name in unknown {
            self.refuse(name, "is not a known parameter");
        }
        if self.errors.is_empty() { Ok(()) } else { Err(Error::Invalid(self.errors)) }
    }

    /// Ends the taking and hands out what was read.
    pub fn finish_with<T>(self, value: Option<T>) -> Result<T, Error> {
        self.finish()?;
        value.ok_or_else(|| Error::Internal("a parameter is missing and nobody complained".into()))
    }

    fn checked<T>(&mut self, name: &str, outcome: Result<T, String>) -> Option<T> {
        match outcome {
            Ok(value) => Some(value),
            Err(reason) => {
                self.refuse(name, reason);
                None
            }
        }
    }
}

/// Undoes URL encoding; `None` if what comes out is not UTF-8. (The usual decoders put U+FFFD
/// in its place.) A `%` that starts no escape stands for itself.
fn decode(encoded: &str) -> Option<String> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let mut bytes = Vec::with_capacity(encoded.len());
    let mut rest = encoded.as_bytes();
    while let [first, tail @ ..] = rest {
        let escaped = match tail {
            [high, low, ..] if *first == b'%' => digit(*high).zip(digit(*low)),
            _ => None,
        };
        match escaped {
            Some((high, low)) => bytes.push((high * 16 + low) as u8),
            None => bytes.push(if *first == b'+' { b' ' } else { *first }),
        }
        rest = if escaped.is_some() { &tail[2..] } else { tail };
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::decode;

    #[test]
    fn escapes_are_undone() {
        assert_eq!(decode("a+b%20c%2Bd%2bd").as_deref(), Some("a b c+d+d"));
        assert_eq!(decode("%C3%BC%F0%9F%98%80ü").as_deref(), Some("ü😀ü"));
    }

    #[test]
    fn a_percent_sign_that_starts_no_escape_stands_for_itself() {
        for text in ["100%", "%", "%2", "%zz", "%%"] {
            assert_eq!(decode(text).as_deref(), Some(text));
        }
    }

    #[test]
    fn what_is_not_utf_8_is_nothing() {
        for text in ["%FF", "a%C3%28", "%ED%A0%80", "%C3"] {
            assert_eq!(decode(text), None);
        }
    }
}
