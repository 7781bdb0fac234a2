//! `ETag` and `If-Match` (RFC 9110): a client changes only the version that it has seen.
//!
//! The entity tag of a record is its version. The engine compares it under the lock of the row, so that of two
//! changes to the same version only one is made.

use actix_web::HttpRequest;
use actix_web::http::header;

use crate::domain::expected_version::ExpectedVersion;
use crate::error::Error;

/// Returns the `ETag` header of a version.
pub(crate) fn etag(version: i32) -> (header::HeaderName, String) {
    (header::ETAG, format!("\"{version}\""))
}

/// Reads `If-Match`, which may be given on several lines.
pub(crate) fn read_if_match(request: &HttpRequest) -> Result<ExpectedVersion, Error> {
    let lines: Vec<&[u8]> = request.headers().get_all(header::IF_MATCH).map(header::HeaderValue::as_bytes).collect();
    if lines.is_empty() {
        return Ok(ExpectedVersion::Any);
    }
    let expected = "must be * or a list of entity tags in double quotes, such as \"3\"";
    parse(&lines.join(&b',')).ok_or_else(|| Error::invalid("If-Match", expected))
}

/// Parses the value of `If-Match`. Weak tags are left out, because they never match.
fn parse(value: &[u8]) -> Option<ExpectedVersion> {
    if value.trim_ascii() == b"*" {
        return Some(ExpectedVersion::Any);
    }
    let mut remaining = skip_separators(value);
    let (mut is_empty, mut versions) = (true, Vec::new());
    while !remaining.is_empty() {
        let (tag, is_weak, rest) = take_tag(remaining)?;
        is_empty = false;
        if !is_weak {
            versions.push(String::from_utf8_lossy(tag).into_owned());
        }
        let separated = skip_separators(rest);
        if !separated.is_empty() && !has_comma(&rest[..rest.len() - separated.len()]) {
            return None;
        }
        remaining = separated;
    }
    (!is_empty).then_some(ExpectedVersion::OneOf(versions))
}

/// Takes an entity tag. Returns its text, whether it is weak, and what follows it.
fn take_tag(value: &[u8]) -> Option<(&[u8], bool, &[u8])> {
    let (is_weak, value) = match value.strip_prefix(b"W/") {
        Some(value) => (true, value),
        None => (false, value),
    };
    let value = value.strip_prefix(b"\"")?;
    let length = value.iter().position(|byte| *byte == b'"')?;
    let tag = &value[..length];
    tag.iter().all(|byte| matches!(byte, b'!'..=b'~' | 0x80..)).then_some((tag, is_weak, &value[length + 1..]))
}

/// A list may have empty elements.
fn skip_separators(value: &[u8]) -> &[u8] {
    let length = value.iter().take_while(|byte| matches!(byte, b',' | b' ' | b'\t')).count();
    &value[length..]
}

fn has_comma(separators: &[u8]) -> bool {
    separators.contains(&b',')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn matches(value: &str, version: i32) -> bool {
        parse(value.as_bytes()).expect(value).includes(version)
    }

    #[test]
    fn a_tag_matches_the_version_that_it_names() {
        assert!(matches("\"3\"", 3));
        for other in ["\"4\"", "\"03\"", "\"+3\"", "\"\"", "\"three\"", "\"3,4\""] {
            assert!(!matches(other, 3), "{other}");
        }
    }

    #[test]
    fn any_tag_of_a_list_may_match() {
        for list in ["\"1\", \"3\"", "\"3\",\"1\"", ", \"1\" ,,\t\"3\" ,", "\"a,b\", \"3\"", "W/\"1\", \"3\""] {
            assert!(matches(list, 3), "{list}");
            assert!(!matches(list, 2), "{list}");
        }
        assert!(matches(" * ", 3));
    }

    #[test]
    fn a_weak_tag_never_matches() {
        assert!(!matches("W/\"3\"", 3));
    }

    #[test]
    fn anything_else_is_malformed() {
        for bad in
            ["", " ", ",", "3", "\"3", "3\"", "\"3\" \"4\"", "\"3\"\"4\"", "*, \"3\"", "w/\"3\"", "\"a b\"", "'3'"]
        {
            assert_eq!(parse(bad.as_bytes()), None, "{bad:?}");
        }
    }
}
