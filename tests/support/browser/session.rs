//! A session of the driver, which is one browser: W3C WebDriver, JSON over HTTP.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};

use super::driver::Driver;
use crate::support::http_client;

/// Longer than any command takes: the driver itself gives up after 30 seconds.
const LONGEST_COMMAND: Duration = Duration::from_secs(60);

pub(crate) struct Session {
    client: reqwest::Client,
    url: String,
}

/// Why the driver has not done what it was told.
#[derive(Debug)]
pub(crate) struct DriverError {
    /// The kind, such as `no such element`.
    error: String,
    message: String,
}

impl DriverError {
    /// Whether the page was being left, or is not as far yet. Then the command may be sent again.
    pub(super) fn is_passing(&self) -> bool {
        let kinds = ["no such element", "stale element reference", "aborted by navigation", "detached shadow root"];
        let words = ["unloaded", "navigated", "Cannot find context", "context was destroyed"];
        kinds.contains(&self.error.as_str()) || words.iter().any(|word| self.message.contains(word))
    }
}

impl fmt::Display for DriverError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}", self.error, self.message)
    }
}

impl Session {
    /// Starts a browser.
    pub(crate) async fn start(driver: &Driver) -> Self {
        let all = Self::at(format!("{}/session", driver.url()));
        let made = all.post("", &driver.capabilities()).await.unwrap_or_else(|error| panic!("no browser: {error}"));
        Self::at(format!("{}/{}", all.url, made["sessionId"].as_str().expect("an id")))
    }

    /// Returns the session at a URL. Each runtime needs a client of its own.
    pub(super) fn at(url: String) -> Self {
        Self { client: http_client(), url }
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    pub(super) async fn get(&self, path: &str) -> Result<Value, DriverError> {
        self.send(Method::GET, path, None).await
    }

    pub(super) async fn post(&self, path: &str, body: &Value) -> Result<Value, DriverError> {
        self.send(Method::POST, path, Some(body)).await
    }

    pub(super) async fn send(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Value, DriverError> {
        let request = self.client.request(method, format!("{}{path}", self.url)).timeout(LONGEST_COMMAND);
        let request = match body {
            Some(body) => request.json(body),
            None => request,
        };
        let lost = |error: reqwest::Error| DriverError { error: "no answer".into(), message: format!("{error:?}") };
        let response = request.send().await.map_err(lost)?;
        let has_succeeded = response.status().is_success();
        let value = response.json::<Value>().await.map_err(lost)?["value"].take();
        if has_succeeded {
            return Ok(value);
        }
        let text = |name: &str| value[name].as_str().unwrap_or_default().to_owned();
        Err(DriverError { error: text("error"), message: text("message") })
    }

    /// Sends a command of the Chrome DevTools Protocol to the current window.
    async fn command(&self, name: &str, parameters: Value) -> Result<Value, DriverError> {
        self.post("/goog/cdp/execute", &json!({"cmd": name, "params": parameters})).await
    }

    /// Drops what the pages so far have logged.
    pub(super) async fn forget_logs(&self) -> Result<(), DriverError> {
        for kind in ["browser", "performance"] {
            self.post("/se/log", &json!({"type": kind})).await?;
        }
        Ok(())
    }

    /// Closes all windows but the first, and removes what a test has left there.
    pub(super) async fn clean(&self, first_window: &str, origins: &BTreeSet<String>) -> Result<(), DriverError> {
        let windows = self.get("/window/handles").await?;
        for window in windows.as_array().expect("windows").iter().filter(|window| **window != first_window) {
            self.post("/window", &json!({"handle": window})).await?;
            self.send(Method::DELETE, "/window", None).await?;
        }
        self.post("/window", &json!({"handle": first_window})).await?;
        self.post("/url", &json!({"url": "about:blank"})).await?;
        // Cookies do not know ports, so the next test's server would get them.
        self.command("Network.clearBrowserCookies", json!({})).await?;
        self.command("Network.clearBrowserCache", json!({})).await?;
        for origin in origins {
            self.command("Storage.clearDataForOrigin", json!({"origin": origin, "storageTypes": "all"})).await?;
        }
        self.command("Emulation.setEmulatedMedia", json!({"features": []})).await?;
        Ok(())
    }

    pub(super) async fn quit(&self) {
        let _ = self.send(Method::DELETE, "", None).await;
    }
}
