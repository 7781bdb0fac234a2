//! The address of the client that sent a request: what logs, limits and the audit use.
//!
//! It is the address of the socket's other end, or, if that is a trusted proxy (`--trusted-proxies`), the
//! address that the proxy reports in `Forwarded` (RFC 7239) or `X-Forwarded-For`. A proxy usually writes
//! one of the two headers and passes on the other as the client sent it. So if both are there and
//! disagree, neither is believed. Nor is a header that is malformed or too long. The address is then the
//! proxy's.

use std::fmt;
use std::future::{Ready, ready};
use std::net::IpAddr;

use actix_web::dev::Payload;
use actix_web::http::header::{self, HeaderMap, HeaderName};
use actix_web::web::Data;
use actix_web::{FromRequest, HttpRequest};

use crate::domain::trusted_proxies::TrustedProxies;

/// The maximum number of bytes of either header.
const MAX_BYTES: usize = 2_048;

/// The address of a client, or nothing if the connection has ended before it could be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ClientAddress(pub Option<IpAddr>);

impl ClientAddress {
    /// Returns the address of the client that sent a request.
    pub(crate) fn of(request: &HttpRequest) -> Self {
        let Some(peer) = request.peer_addr() else { return ClientAddress(None) };
        let client = match request.app_data::<Data<TrustedProxies>>() {
            Some(trusted) => client_address(peer.ip(), request.headers(), trusted),
            None => peer.ip().to_canonical(),
        };
        ClientAddress(Some(client))
    }
}

/// Returns whether a trusted proxy says that it was asked over TLS, in `Forwarded` or `X-Forwarded-Proto`. Of several
/// proxies, the nearest counts. If both headers name a scheme, both must say so.
pub(crate) fn is_forwarded_tls(request: &HttpRequest) -> bool {
    let peer = request.peer_addr().map(|peer| peer.ip().to_canonical());
    let trusted = request.app_data::<Data<TrustedProxies>>();
    match peer.zip(trusted) {
        Some((peer, trusted)) if trusted.contains(peer) => reports_tls(request.headers()),
        _ => false,
    }
}

fn reports_tls(headers: &HeaderMap) -> bool {
    let mut schemes = Vec::new();
    if headers.contains_key(header::FORWARDED) {
        let last = |text: String| read_parameter(split(&text, ',')?.last()?, "proto").ok();
        let Some(scheme) = joined(headers, &header::FORWARDED).and_then(last) else { return false };
        schemes.extend(scheme);
    }
    if headers.contains_key(header::X_FORWARDED_PROTO) {
        let text = joined(headers, &header::X_FORWARDED_PROTO).unwrap_or_default();
        schemes.extend(text.rsplit(',').next().map(|scheme| scheme.trim().to_owned()));
    }
    !schemes.is_empty() && schemes.iter().all(|scheme| scheme.eq_ignore_ascii_case("https"))
}

impl fmt::Display for ClientAddress {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(address) => address.fmt(out),
            None => out.write_str("unknown"),
        }
    }
}

impl FromRequest for ClientAddress {
    type Error = std::convert::Infallible;
    type Future = Ready<Result<Self, Self::Error>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        ready(Ok(ClientAddress::of(request)))
    }
}

fn client_address(peer: IpAddr, headers: &HeaderMap, trusted: &TrustedProxies) -> IpAddr {
    let peer = peer.to_canonical();
    if !trusted.contains(peer) {
        return peer;
    }
    let reported = |name: &HeaderName, chain: fn(&str) -> Option<Vec<String>>| {
        headers.contains_key(name).then(|| {
            let chain = chain(&joined(headers, name)?)?;
            trusted.client_behind(peer, chain.iter().map(String::as_str))
        })
    };
    let forwarded = reported(&header::FORWARDED, read_forwarded);
    let x_forwarded_for = reported(&header::X_FORWARDED_FOR, |text| Some(text.split(',').map(str::to_owned).collect()));
    match (forwarded, x_forwarded_for) {
        (Some(one), Some(other)) if one != other => peer,
        (Some(client), _) | (None, Some(client)) => client.unwrap_or(peer),
        (None, None) => peer,
    }
}

/// Joins the lines of a header. Returns `None` if they are too long or no text.
fn joined(headers: &HeaderMap, name: &HeaderName) -> Option<String> {
    let mut text = String::new();
    for line in headers.get_all(name) {
        if text.len() + line.len() > MAX_BYTES {
            return None;
        }
        text.push_str(if text.is_empty() { "" } else { "," });
        text.push_str(line.to_str().ok()?);
    }
    Some(text)
}

/// Returns the `for` of each element of a `Forwarded`, or `None` if the header is malformed. An element
/// without a `for` stands for an unknown client.
fn read_forwarded(text: &str) -> Option<Vec<String>> {
    let element = |text: &String| Some(read_parameter(text, "for").ok()?.unwrap_or_else(|| "unknown".into()));
    split(text, ',')?.iter().map(element).collect()
}

/// A header that cannot be read.
struct Malformed;

/// Returns the value of one parameter of an element of a `Forwarded`, if it is there.
fn read_parameter(element: &str, wanted: &str) -> Result<Option<String>, Malformed> {
    let mut found = None;
    let pairs = split(element, ';').ok_or(Malformed)?;
    for pair in pairs.iter().map(|pair| pair.trim()).filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').ok_or(Malformed)?;
        if name.eq_ignore_ascii_case(wanted) && found.replace(unquote(value).ok_or(Malformed)?).is_some() {
            return Err(Malformed);
        }
    }
    Ok(found)
}

/// Splits text at a character outside quotes. Returns `None` if a quote is not closed.
fn split(text: &str, at: char) -> Option<Vec<String>> {
    let mut parts = vec![String::new()];
    let (mut is_quoted, mut is_escaped) = (false, false);
    for character in text.chars() {
        if character == at && !is_quoted {
            parts.push(String::new());
            continue;
        }
        is_quoted ^= character == '"' && !is_escaped;
        is_escaped = is_quoted && character == '\\' && !is_escaped;
        parts.last_mut()?.push(character);
    }
    (!is_quoted).then_some(parts)
}

/// Returns the text of a token or a quoted string.
fn unquote(value: &str) -> Option<String> {
    let Some(inner) = value.strip_prefix('"') else {
        return (!value.contains(['"', ' '])).then(|| value.to_owned());
    };
    let mut text = String::new();
    let mut characters = inner.strip_suffix('"')?.chars();
    while let Some(character) = characters.next() {
        text.push(if character == '\\' { characters.next()? } else { character });
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use actix_web::http::header::HeaderValue;

    use super::*;

    /// Returns the client behind the trusted proxy 10.0.0.1, by header lines.
    fn client(peer: &str, lines: &[(&'static str, &str)]) -> String {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(HeaderName::from_static(name), HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        client_address(peer.parse().unwrap(), &headers, &"10.0.0.0/24".parse().unwrap()).to_string()
    }

    const X: &str = "x-forwarded-for";
    const F: &str = "forwarded";

    #[test]
    fn a_trusted_proxy_reports_its_client_in_one_of_two_headers() {
        for (lines, expected) in [
            (&[(X, "192.0.2.1")][..], "192.0.2.1"),
            (&[(X, "8.8.8.8, 192.0.2.1")], "192.0.2.1"),
            (&[(X, "8.8.8.8"), (X, "192.0.2.1,10.0.0.2")], "192.0.2.1"),
            (&[(F, "for=192.0.2.1")], "192.0.2.1"),
            (&[(F, "For=\"[2001:db8:cafe::17]:4711\"")], "2001:db8:cafe::17"),
            (&[(F, "for=8.8.8.8;by=x, proto=https; for=192.0.2.1 ;host=\"a,b;c\"")], "192.0.2.1"),
            (&[(F, "for=8.8.8.8"), (F, "for=192.0.2.1")], "192.0.2.1"),
            (&[(F, "for=\"192.0.2\\.1\"")], "192.0.2.1"),
            (&[(F, "for=unknown, for=192.0.2.1")], "192.0.2.1"),
            // Both headers, in agreement.
            (&[(F, "for=192.0.2.1"), (X, "8.8.8.8, 192.0.2.1")], "192.0.2.1"),
            (&[], "10.0.0.1"),
        ] {
            assert_eq!(client("10.0.0.1", lines), expected, "{lines:?}");
        }
    }

    #[test]
    fn headers_that_cannot_be_believed_leave_the_address_of_the_proxy() {
        let long = format!("192.0.2.1{}", " ".repeat(MAX_BYTES));
        for lines in [
            // Disagreement: one of the two was written by the client.
            &[(F, "for=8.8.8.8"), (X, "192.0.2.1")][..],
            &[(F, "for=\"8.8.8.8"), (X, "192.0.2.1")],
            &[(X, "192.0.2.1, unknown")],
            &[(X, "")],
            &[(X, "192.0.2.1,")],
            &[(X, "é")],
            &[(X, &long)],
            &[(F, "for=unknown")],
            &[(F, "for=_hidden")],
            &[(F, "for=\"unix:/run/x\"")],
            &[(F, "proto=https")],
            &[(F, "for=192.0.2.1;for=192.0.2.2")],
            &[(F, "for=\"192.0.2.1")],
            &[(F, "for=\"192.0.2.1\\\"")],
            &[(F, "192.0.2.1")],
            &[(F, "")],
        ] {
            assert_eq!(client("10.0.0.1", lines), "10.0.0.1", "{lines:?}");
        }
    }

    #[test]
    fn a_proxy_reports_whether_it_was_asked_over_tls() {
        const P: &str = "x-forwarded-proto";
        for (lines, expected) in [
            (&[(P, "https")][..], true),
            (&[(P, "HTTPS")], true),
            (&[(P, "http, https")], true),
            (&[(P, "http"), (P, "https")], true),
            (&[(F, "for=192.0.2.1;proto=https")], true),
            (&[(F, "proto=http, proto=\"https\"")], true),
            (&[(F, "proto=https"), (P, "https")], true),
            (&[(F, "for=192.0.2.1"), (P, "https")], true),
            (&[], false),
            (&[(P, "http")], false),
            (&[(P, "https, http")], false),
            (&[(P, "")], false),
            (&[(P, "é")], false),
            (&[(F, "for=192.0.2.1")], false),
            (&[(F, "proto=https, for=192.0.2.1")], false),
            (&[(F, "proto=https;proto=https")], false),
            (&[(F, "proto=\"https")], false),
            (&[(F, "proto=https"), (P, "http")], false),
            (&[(F, "for=\"192.0.2.1"), (P, "https")], false),
        ] {
            let mut headers = HeaderMap::new();
            for (name, value) in lines {
                headers.append(HeaderName::from_static(name), HeaderValue::from_bytes(value.as_bytes()).unwrap());
            }
            assert_eq!(reports_tls(&headers), expected, "{lines:?}");
        }
    }

    #[test]
    fn nobody_else_is_believed() {
        for peer in ["192.0.2.9", "2001:db8::9", "127.0.0.1"] {
            assert_eq!(client(peer, &[(X, "8.8.8.8"), (F, "for=8.8.8.8")]), peer);
        }
        assert_eq!(client("::ffff:192.0.2.9", &[(X, "8.8.8.8")]), "192.0.2.9");
        assert_eq!(client("::ffff:10.0.0.1", &[(X, "8.8.8.8")]), "8.8.8.8");
    }
}
