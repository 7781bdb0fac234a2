//! Checks of webhook URLs.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ::url::{Host, Url};

use super::{AllowList, refusal};
use crate::domain::{limits, text};

/// Checks a URL without resolving its host name. An address in the URL is checked in every spelling
/// that a URL parser reads as an address. The error is the reason for refusal.
pub(crate) fn check_url(url: &str, allow: &AllowList) -> Result<(), String> {
    match check_syntax(url)?.host() {
        None => Err("must name a host".into()),
        Some(Host::Ipv4(ip)) => check_address(ip.into(), allow),
        Some(Host::Ipv6(ip)) => check_address(ip.into(), allow),
        Some(Host::Domain(name)) => check_name(name, allow),
    }
}

/// Checks everything about a URL except whether its host may be reached, which depends on the settings
/// of the server.
pub(crate) fn check_syntax(url: &str) -> Result<Url, String> {
    text::check(url, limits::URL_CHARS)?;
    // The parser would drop some of these silently.
    if url.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return Err("must not contain spaces or control characters".into());
    }
    let (scheme, remainder) = url.split_once("://").unwrap_or_default();
    if !["http", "https"].iter().any(|known| scheme.eq_ignore_ascii_case(known)) {
        return Err("must begin with https:// or http://".into());
    }
    // The parser would skip extra slashes and read `http:///x` as `http://x`.
    if remainder.starts_with(['/', '\\']) {
        return Err("must name a host after the //".into());
    }
    let url = Url::parse(url).map_err(|why| format!("must be a URL such as https://example.com/hook: {why}"))?;
    check_parts(&url)?;
    Ok(url)
}

fn check_parts(url: &Url) -> Result<(), String> {
    if !url.username().is_empty() || url.password().is_some() {
        return Err("must not contain a user name or password; send a header instead".into());
    }
    if url.fragment().is_some() {
        return Err("must not contain a fragment (#…), which is never sent".into());
    }
    if url.port() == Some(0) {
        return Err("must not name port 0".into());
    }
    Ok(())
}

fn check_address(ip: IpAddr, allow: &AllowList) -> Result<(), String> {
    match refusal(ip, allow) {
        None => Ok(()),
        Some(range) => Err(format!("must not lead to {ip}, which is not a public address ({range})")),
    }
}

/// Refuses `localhost` and names below it, which always mean loopback (RFC 6761). Other names are
/// checked by the addresses that they resolve to, when the connection is made.
fn check_name(name: &str, allow: &AllowList) -> Result<(), String> {
    let name = name.strip_suffix('.').unwrap_or(name);
    let is_local = name == "localhost" || name.ends_with(".localhost");
    let is_allowed = allow.contains(Ipv4Addr::LOCALHOST.into()) || allow.contains(Ipv6Addr::LOCALHOST.into());
    if is_local && !is_allowed {
        return Err(format!("must not lead to {name}, which is not a public address (loopback)"));
    }
    Ok(())
}

/// Returns the URL as it is shown in logs: without user name, query and fragment, and without what follows the
/// first segment of its path. Receivers often put a token there.
pub(crate) fn masked(url: &str) -> String {
    let Ok(url) = Url::parse(url) else { return "(not a URL)".to_owned() };
    let origin = url.origin().ascii_serialization();
    let mut segments = url.path().trim_start_matches('/').splitn(2, '/');
    let (first, others) = (segments.next().unwrap_or_default(), segments.next().unwrap_or_default());
    let mask = if others.is_empty() { "" } else { "/…" };
    format!("{origin}/{first}{mask}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(url: &str) -> Result<(), String> {
        check_url(url, &AllowList::default())
    }

    #[test]
    fn public_hosts_are_accepted() {
        for good in [
            "https://example.com/hook",
            "http://example.com",
            "https://example.com:8443/a/b?c=d%20e",
            "HTTPS://EXAMPLE.com./",
            "https://bücher.example/",
            "http://93.184.215.14/",
            "http://[2606:4700::1111]:8080/",
            "http://[::ffff:93.184.215.14]/",
            "http://notlocalhost/",
        ] {
            assert_eq!(check(good), Ok(()), "{good}");
        }
    }

    #[test]
    fn every_spelling_of_a_refused_address_is_refused() {
        for bad in [
            "127.0.0.1",
            "127.0.0.1.",
            "127.1",
            "2130706433",
            "0x7f.1",
            "0x7f000001",
            "0177.0.0.1",
            "017700000001",
            "127%2e0%2e0%2e1",
            "１２７.0.0.1",
            "127。0。0。1",
            "0",
            "169.254.169.254",
            "0xa9fea9fe",
            "[::1]",
            "[0:0:0:0:0:0:0:1]",
            "[::]",
            "[::ffff:127.0.0.1]",
            "[::ffff:7f00:1]",
            "[::127.0.0.1]",
            "[64:ff9b::10.0.0.1]",
            "[2002:7f00:1::]",
            "[fd00:ec2::254]",
            "[fe80::1]",
        ] {
            for url in [format!("http://{bad}/"), format!("https://{bad}:8443/hook")] {
                let reason = check(&url).expect_err(&url);
                assert!(reason.contains("not a public address"), "{url}: {reason}");
            }
        }
    }

    #[test]
    fn localhost_is_refused_unless_loopback_is_allowed() {
        for url in ["http://localhost/", "http://LOCALHOST.:80/", "http://a.b.localhost/"] {
            assert!(check(url).is_err(), "{url}");
            for allow in ["127.0.0.0/8", "::1"] {
                assert_eq!(check_url(url, &allow.parse().unwrap()), Ok(()), "{url}");
            }
            assert!(check_url(url, &"10.0.0.0/8".parse().unwrap()).is_err(), "{url}");
        }
    }

    #[test]
    fn logs_show_a_url_up_to_the_first_segment_of_its_path() {
        for (url, shown) in [
            ("https://example.com", "https://example.com/"),
            ("https://example.com/hook", "https://example.com/hook"),
            ("https://example.com/hook/", "https://example.com/hook"),
            ("http://127.0.0.1:9000/services/T0/B0/s3cret", "http://127.0.0.1:9000/services/…"),
            ("https://example.com//s3cret/s3cret", "https://example.com/s3cret/…"),
            ("https://example.com/hook?token=s3cret/a", "https://example.com/hook"),
            ("https://s3cret:s3cret@example.com:8443/hook/s3cret?s3cret#s3cret", "https://example.com:8443/hook/…"),
            ("https://[2606:4700::1111]/a/s3cret", "https://[2606:4700::1111]/a/…"),
            ("s3cret", "(not a URL)"),
        ] {
            assert_eq!(masked(url), shown);
        }
    }

    #[test]
    fn addresses_of_an_allowed_network_are_accepted() {
        let allow = "127.0.0.0/8,fd12::/16".parse().unwrap();
        for good in ["http://127.0.0.1:80/", "http://2130706433/", "http://[::ffff:127.9.9.9]/", "http://[fd12::1]/"] {
            assert_eq!(check_url(good, &allow), Ok(()), "{good}");
        }
        assert!(check_url("http://[::1]/", &allow).is_err());
    }

    #[test]
    fn invalid_webhook_urls_are_refused() {
        for bad in [
            "",
            "example.com/hook",
            "/hook",
            "ftp://example.com/",
            "file:///etc/passwd",
            "javascript:alert(1)",
            "http:/example.com/",
            "http:example.com/?a=://b",
            "https://",
            "http:///x",
            "https:////example.com/",
            "https://\\example.com/",
            "http://?a",
            "http://:80/",
            "https://user@example.com/",
            "https://user:word@example.com/",
            "https://:word@example.com/",
            "https://example.com/#part",
            "https://example.com:0/",
            "https://example.com:65536/",
            "https://exa mple.com/",
            "https://example.com/a\nb",
            " https://example.com/",
            "https://[::1/",
            "https://256.1.1.1/",
            "https://[fe80::1%25eth0]/",
        ] {
            assert!(check(bad).is_err(), "{bad}");
        }
    }
}
