//! The cookie that carries the session of a browser.
//!
//! Scripts cannot read it (`HttpOnly`), and browsers do not send it with requests that other sites cause
//! (`SameSite=Strict`). Over TLS its name begins with `__Host-`: browsers take a cookie of that name only from this very
//! host over TLS, so a neighbouring host cannot plant one.

use actix_web::HttpRequest;
use actix_web::http::header;
use actix_web::web::Data;

use super::client_address::is_forwarded_tls;
use super::page::ServesTls;
use crate::domain::api_key::{KeyHash, SessionSecret};

const NAME: &str = "waybill_session";
const NAME_OVER_TLS: &str = "__Host-waybill_session";

/// Returns the session that a request carries, if its cookie is one.
pub(crate) fn session_of(request: &HttpRequest) -> Option<KeyHash> {
    if !request.headers().contains_key(header::COOKIE) {
        return None;
    }
    let name = if is_over_tls(request) { NAME_OVER_TLS } else { NAME };
    let cookies =
        request.headers().get_all(header::COOKIE).flat_map(|line| line.as_bytes().split(|byte| *byte == b';'));
    let mut values = cookies.filter_map(|cookie| cookie.trim_ascii().strip_prefix(name.as_bytes())?.strip_prefix(b"="));
    values.find_map(SessionSecret::hash_of)
}

/// Returns the value of `Set-Cookie` that gives a browser a session for so many seconds.
pub(crate) fn cookie_of(request: &HttpRequest, secret: &SessionSecret, seconds: i64) -> String {
    cookie(request, secret.as_text(), seconds.max(1))
}

/// Returns the value of `Set-Cookie` that takes the session from a browser.
pub(crate) fn no_cookie(request: &HttpRequest) -> String {
    cookie(request, "", 0)
}

fn cookie(request: &HttpRequest, value: &str, seconds: i64) -> String {
    let (name, secure) = if is_over_tls(request) { (NAME_OVER_TLS, "; Secure") } else { (NAME, "") };
    format!("{name}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}")
}

/// Returns whether the browser has asked over TLS, of this server or of a trusted proxy.
pub(crate) fn is_over_tls(request: &HttpRequest) -> bool {
    request.app_data::<Data<ServesTls>>().is_some_and(|tls| tls.0) || is_forwarded_tls(request)
}

#[cfg(test)]
mod tests {
    use actix_web::test::TestRequest;

    use super::*;

    fn session_in(lines: &[&str], tls: bool) -> Option<KeyHash> {
        let mut request = TestRequest::default().app_data(Data::new(ServesTls(tls)));
        for line in lines {
            request = request.append_header((header::COOKIE, *line));
        }
        session_of(&request.to_http_request())
    }

    #[test]
    fn a_session_is_found_among_other_cookies() {
        let secret = SessionSecret::generate().unwrap();
        let (text, hash) = (secret.as_text(), Some(secret.hash()));
        for lines in [
            &[format!("waybill_session={text}")][..],
            &[format!("a=b; waybill_session={text};c=d")],
            &["a=b".into(), format!(" waybill_session={text} ")],
            &[format!("waybill_session=old; waybill_session={text}")],
        ] {
            let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
            assert_eq!(session_in(&lines, false), hash, "{lines:?}");
        }
        for line in [
            "",
            "waybill_session",
            "waybill_session=",
            "waybill_session=x",
            ";;=;",
            &format!("waybill_session2={text}"),
        ] {
            assert_eq!(session_in(&[line], false), None, "{line}");
        }
    }

    #[test]
    fn over_tls_only_the_cookie_of_this_very_host_counts() {
        let secret = SessionSecret::generate().unwrap();
        let (plain, of_host) =
            (format!("waybill_session={}", secret.as_text()), format!("__Host-waybill_session={}", secret.as_text()));
        assert_eq!(session_in(&[&plain], true), None);
        assert_eq!(session_in(&[&of_host], true), Some(secret.hash()));
        assert_eq!(session_in(&[&of_host], false), None);
    }
}
