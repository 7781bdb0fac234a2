//! What no page may do: log an error, ask another server for anything, or exclude readers.

use std::fs;
use std::path::Path;
use std::sync::OnceLock;

use serde_json::{Value, json};
use url::Url;

use super::Page;

/// The success criteria that pages are checked for: WCAG 2.0, 2.1 and 2.2, levels A and AA.
const CRITERIA: [&str; 5] = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"];

/// Returns what axe-core finds, as one text for each rule that is broken.
const CHECK: &str = "
    return axe.run(document, {runOnly: {type: 'tag', values: arguments[0]}}).then(({violations}) =>
        violations.map(({id, impact, help, nodes}) => `${id} (${impact}): ${help}` + nodes.map(
            ({target, html, failureSummary}) => `\\n  ${target.join(' ')}: ${html}\\n    ${failureSummary}`).join('')));";

impl Page<'_> {
    /// Asserts that the pages so far have logged no error and asked no other server for anything, and that this
    /// one is accessible.
    pub(crate) async fn assert_clean(&self) {
        let mut findings = self.console_errors().await;
        findings.extend(self.requests_outside().await.into_iter().map(|url| format!("a request to {url}")));
        findings.extend(self.accessibility_violations().await);
        assert!(findings.is_empty(), "{}:\n{}", self.url().await, findings.join("\n"));
    }

    /// Returns the errors in the console since the last call, of all windows. A response with an error status is
    /// one, too.
    pub(crate) async fn console_errors(&self) -> Vec<String> {
        let entries = self.log("browser").await.into_iter().filter(|entry| entry["level"] == "SEVERE");
        entries.map(|entry| entry["message"].as_str().expect("a message").to_owned()).collect()
    }

    /// Returns the URLs that pages have asked for since the last call, in all windows, also if in vain.
    pub(crate) async fn requests(&self) -> Vec<String> {
        let entries = self.log("performance").await;
        let url_of = |entry: Value| {
            let entry: Value = serde_json::from_str(entry["message"].as_str()?).expect("JSON");
            let (method, details) = (entry["message"]["method"].as_str()?, &entry["message"]["params"]);
            let url = match method {
                "Network.requestWillBeSent" => &details["request"]["url"],
                "Network.webSocketCreated" | "Network.webTransportCreated" => &details["url"],
                _ => return None,
            };
            Some(url.as_str().expect("a URL").to_owned())
        };
        entries.into_iter().filter_map(url_of).collect()
    }

    /// Returns those of the requests that were not for a server of which the test has opened a page.
    pub(crate) async fn requests_outside(&self) -> Vec<String> {
        let origins = self.browser().origins();
        let leaves = |url: &String| {
            let url = Url::parse(url).expect("a URL");
            // Others, such as `data:` and `about:`, do not use the network.
            let uses_network = ["http", "https", "ws", "wss"].contains(&url.scheme());
            let origin = url.origin().ascii_serialization();
            // A WebSocket (`ws:`, `wss:`) belongs to the server of the page with the same host and port.
            let origin = origin.strip_prefix("ws").map_or(origin.clone(), |rest| format!("http{rest}"));
            uses_network && !origins.contains(&origin)
        };
        self.requests().await.into_iter().filter(leaves).collect()
    }

    /// Returns what axe-core finds in the page as it is now.
    pub(crate) async fn accessibility_violations(&self) -> Vec<String> {
        if self.value_of("typeof axe").await == "undefined" {
            self.run(axe(), json!([])).await.expect("axe-core runs");
        }
        let found = self.run(CHECK, json!([CRITERIA])).await.unwrap_or_else(|error| panic!("axe-core: {error}"));
        serde_json::from_value(found).expect("texts")
    }
}

/// Returns the source of axe-core.
fn axe() -> &'static str {
    static SOURCE: OnceLock<String> = OnceLock::new();
    SOURCE.get_or_init(|| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/browser/node_modules/axe-core/axe.min.js");
        fs::read_to_string(path).expect("axe-core is installed: see scripts/prepare --tests")
    })
}
