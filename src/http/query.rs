//! Query parameters: their decoding for [`Fields`], and those that all lists have.

use std::borrow::Cow;

use actix_web::HttpRequest;
use serde::Serialize;

use super::cursor::{Cursor, ListCursors, NOT_A_CURSOR};
use crate::domain::history::Numbers;
use crate::domain::ids::NamespaceId;
use crate::domain::input::{Fields, InputError, MAX_FIELDS, QueryValue, shown};
use crate::domain::limits;
use crate::engine::Engine;
use crate::error::Error;
use crate::store::lists::pages::{NamePage, Page};

const NOT_UTF_8: &str = "must be UTF-8, URL-encoded";

/// The query parameters of a request.
pub(crate) type Query = Fields<'static, QueryValue>;

/// Returns the query parameters of a request.
pub(crate) fn read_query(request: &HttpRequest) -> Result<Query, InputError> {
    read_pairs(request.query_string())
}

/// Returns the parameters in the text of a query, or in the body of a form.
pub(crate) fn read_pairs(text: &str) -> Result<Query, InputError> {
    let pairs = text.split('&').filter(|pair| !pair.is_empty());
    if pairs.clone().nth(MAX_FIELDS).is_some() {
        return Err(InputError::invalid("query", format!("must have at most {MAX_FIELDS} parameters")));
    }
    let pairs: Result<Vec<_>, InputError> = pairs.map(read_pair).collect();
    Ok(Fields::new(pairs?))
}

/// Refuses all query parameters.
pub(crate) fn expect_no_query(request: &HttpRequest) -> Result<(), InputError> {
    read_query(request)?.finish()
}

fn read_pair(pair: &str) -> Result<(Cow<'static, str>, QueryValue), InputError> {
    let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
    let name = decode(name).ok_or_else(|| InputError::invalid("query", NOT_UTF_8))?;
    let value = decode(value).ok_or_else(|| InputError::invalid(shown(&name), NOT_UTF_8))?;
    Ok((name.into(), QueryValue(value)))
}

/// The number of rows of a page, if the request does not say.
pub(crate) const DEFAULT_PAGE: i64 = 100;

/// The parameters `after`, `limit` and `order` of a list.
#[derive(Debug)]
pub(crate) struct PageQuery {
    pub after: Option<Cursor>,
    pub limit: i64,
    pub descending: bool,
}

/// Reads `after`, `limit` and `order` of a list.
pub(crate) fn read_page(query: &mut Query, default_limit: i64) -> PageQuery {
    PageQuery {
        after: read_cursor(query),
        limit: query.integer("limit", limits::PAGE).unwrap_or(default_limit),
        descending: query.choice("order", parse_order, "asc, desc").unwrap_or(false),
    }
}

/// Reads the cursor `after`.
pub(crate) fn read_cursor(query: &mut Query) -> Option<Cursor> {
    query.parse_text("after", |text| Cursor::parse(text).ok_or_else(|| NOT_A_CURSOR.to_owned()))
}

impl PageQuery {
    /// Returns the page of a list that is in the order of ids, and the cursors of that list.
    pub(crate) async fn by_id<'a>(
        self,
        engine: &'a Engine,
        namespace: NamespaceId,
        list: &str,
        numbers: Numbers,
        filter: &impl Serialize,
    ) -> Result<(Page, ListCursors<'a>), Error> {
        let PageQuery { after, limit, descending } = self;
        let cursors = ListCursors::new(engine, namespace, list, numbers, descending, filter)?;
        let after = cursors.position(after).await?;
        Ok((Page { descending, after, limit, scan: engine.settings().list_scan_rows }, cursors))
    }

    /// Returns the page of a list that is in the order of names, and the cursors of that list.
    pub(crate) async fn by_name<'a>(
        self,
        engine: &'a Engine,
        namespace: NamespaceId,
        list: &str,
    ) -> Result<(NamePage, ListCursors<'a>), Error> {
        let PageQuery { after, limit, descending } = self;
        let cursors = ListCursors::new(engine, namespace, list, Numbers::Ids, descending, &())?;
        let after = cursors.position(after).await?;
        Ok((NamePage { descending, after, limit }, cursors))
    }
}

/// Returns whether an order is descending.
fn parse_order(text: &str) -> Option<bool> {
    match text {
        "asc" => Some(false),
        "desc" => Some(true),
        _ => None,
    }
}

/// Decodes URL encoding. Returns `None` if the result is not UTF-8; common decoders would insert
/// U+FFFD instead. A `%` that starts no escape stands for itself.
fn decode(encoded: &str) -> Option<String> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let mut bytes = Vec::with_capacity(encoded.len());
    let mut remaining = encoded.as_bytes();
    while let [first, tail @ ..] = remaining {
        let escaped = match tail {
            [high, low, ..] if *first == b'%' => digit(*high).zip(digit(*low)),
            _ => None,
        };
        match escaped {
            Some((high, low)) => bytes.push((high * 16 + low) as u8),
            None => bytes.push(if *first == b'+' { b' ' } else { *first }),
        }
        remaining = if escaped.is_some() { &tail[2..] } else { tail };
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::decode;

    #[test]
    fn escapes_are_decoded() {
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
    fn text_that_is_not_utf_8_is_refused() {
        for text in ["%FF", "a%C3%28", "%ED%A0%80", "%C3"] {
            assert_eq!(decode(text), None);
        }
    }
}
