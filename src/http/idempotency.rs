//! Idempotency keys in headers.

use actix_web::HttpRequest;
use actix_web::http::header::HeaderName;

use crate::domain::limits;
use crate::domain::text;
use crate::error::Error;

/// The header, and the name that is in use besides it, each as it is looked up and as it is shown.
static HEADERS: [(HeaderName, &str); 2] = [
    (HeaderName::from_static("idempotency-key"), "Idempotency-Key"),
    (HeaderName::from_static("x-idempotency-key"), "X-Idempotency-Key"),
];

/// Returns the key in the headers of a request, if there is one. It is a structured-field string (RFC 9651), or the value
/// as it is.
pub(crate) fn header_key(request: &HttpRequest) -> Result<Option<String>, Error> {
    let mut found: Option<String> = None;
    for (name, shown) in &HEADERS {
        for value in request.headers().get_all(name) {
            let value = value.to_str().map_err(|_| Error::invalid(*shown, "must be ASCII"))?;
            let key = read_key(value).map_err(|reason| Error::invalid(*shown, reason))?;
            if found.replace(key.clone()).is_some_and(|other| other != key) {
                return Err(Error::invalid(*shown, "must be given once"));
            }
        }
    }
    Ok(found)
}

/// Refuses a key in the headers of a request whose events have their own keys.
pub(crate) fn refuse_header_key(request: &HttpRequest) -> Result<(), Error> {
    match HEADERS.iter().find(|(name, _)| request.headers().contains_key(name)) {
        Some((_, shown)) => Err(Error::invalid(*shown, "does not apply here: each event has its own key")),
        None => Ok(()),
    }
}

fn read_key(value: &str) -> Result<String, String> {
    let value = value.trim();
    let key = match value.strip_prefix('"') {
        Some(quoted) => unquote(quoted).ok_or("must be a string in quotes, or a key without quotes")?,
        None => value.to_owned(),
    };
    text::check(&key, limits::NAME_CHARS)?;
    Ok(key)
}

/// Returns the string whose opening quote was read, if it ends with a quote and its escapes are valid.
fn unquote(quoted: &str) -> Option<String> {
    let (mut key, mut rest) = (String::new(), quoted.chars());
    loop {
        match rest.next()? {
            '"' => return rest.as_str().is_empty().then_some(key),
            '\\' => key.push(rest.next().filter(|escaped| matches!(escaped, '"' | '\\'))?),
            other => key.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_read_with_and_without_quotes() {
        assert_eq!(read_key("abc-1").unwrap(), "abc-1");
        assert_eq!(read_key(r#" "abc 1" "#).unwrap(), "abc 1");
        assert_eq!(read_key(r#""a\"b\\c""#).unwrap(), r#"a"b\c"#);
    }

    #[test]
    fn a_key_that_is_no_string_is_refused() {
        for value in ["", r#""""#, r#""abc"#, r#""abc";a=1"#, r#""a\n""#, r#""a"b"#, &"x".repeat(256)] {
            assert!(read_key(value).is_err(), "{value}");
        }
    }
}
