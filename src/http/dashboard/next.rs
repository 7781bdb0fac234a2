//! Where somebody goes after the login: a page of this server, and nowhere else.

/// The page to which a login leads that was not on the way to another.
pub(super) const HOME: &str = "/";

/// The maximum length of a path to come back to.
const MAX_BYTES: usize = 2_048;

/// Returns the place to go to, or the first page if what was asked for is no page of this server.
pub(super) fn checked(next: Option<&str>) -> &str {
    next.filter(|next| is_page(next)).unwrap_or(HOME)
}

/// Returns whether a text is the path of a page: other paths may do something. Browsers take `//host` and `/\host` for
/// another server, and drop tabs and line breaks before they look.
fn is_page(text: &str) -> bool {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\');
    let path = text.split(['?', '#']).next().unwrap_or_default();
    is_plain
        && text.len() <= MAX_BYTES
        && (["/", "/docs"].contains(&path) || path.starts_with("/ui/"))
        && !path.split('/').any(is_dots)
}

/// Returns whether a step of a path leads upwards or nowhere: browsers resolve these, escaped or not, and so leave `/ui`.
fn is_dots(step: &str) -> bool {
    let step = step.to_ascii_lowercase().replace("%2e", ".");
    step == "." || step == ".."
}

/// Returns the path of the login that leads back to `target`, the path and query of a request.
pub(super) fn login_path(target: &str) -> String {
    let mut path = String::from("/login");
    let target = checked(Some(target));
    if target == HOME {
        return path;
    }
    path.push_str("?next=");
    for byte in target.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => path.push(char::from(byte)),
            _ => path.push_str(&format!("%{byte:02X}")),
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_page_of_this_server_is_a_place_to_go_to() {
        for good in ["/", "/?span=7d", "/docs", "/ui/events/5", "/ui/events?q=a%20b&order=desc", "/ui/events#log"] {
            assert_eq!(checked(Some(good)), good);
        }
        let long = format!("/{}", "x".repeat(MAX_BYTES));
        for bad in [
            "",
            "ui",
            "//evil",
            "//evil.example/x",
            "/\\evil",
            "\\\\evil",
            "/\t/evil",
            "/\n/evil",
            "/\r/evil",
            "\t//evil",
            " //evil",
            "/ /evil",
            "https:",
            "https://evil",
            "https:evil",
            "javascript:alert(1)",
            "data:,x",
            "///evil",
            "/a\\b",
            "/é",
            "/a\0",
            "/events/subscribe?tags=a",
            "/ui",
            "/ui/../events/subscribe?tags=a",
            "/ui/%2E./events/subscribe?tags=a",
            "/.//x",
            "/a//b",
            "/loginx",
            "/login",
            "/login?next=/login",
            "/logout",
            "/login#x",
            "?next=x",
            "#x",
            &long,
        ] {
            assert_eq!(checked(Some(bad)), HOME, "{bad:?}");
        }
        assert_eq!(checked(None), HOME);
    }

    #[test]
    fn the_login_leads_back() {
        assert_eq!(login_path("/"), "/login");
        assert_eq!(login_path("//evil"), "/login");
        assert_eq!(login_path("/ui/events?q=a+b&x=%41#\"<"), "/login?next=/ui/events%3Fq%3Da%2Bb%26x%3D%2541%23%22%3C");
    }
}
