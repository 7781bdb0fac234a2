//! A page in a window of a browser.

use std::fs;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use reqwest::Method;
use serde_json::{Value, json};
use url::Url;

use super::keys::pressed;
use super::{Browser, DriverError};
use crate::support::until;

/// The name under which WebDriver refers to an element.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// A page that is narrower than this is shown as on a phone.
const PHONE_WIDTH: u32 = 600;

/// How much of a long page a picture shows.
const TALLEST_PICTURE: f64 = 4000.0;

/// How often [`Page::tab_to`] presses the key.
const MOST_TABS: usize = 200;

/// Lets the page itself look for a condition, for up to a quarter of a second.
const LOOK_REPEATEDLY: &str = "
    const end = performance.now() + 250;
    return new Promise((settle, fail) => {
        const look = () => {
            try {
                const found = holds();
                if (found || performance.now() > end) settle(found); else setTimeout(look, 10);
            } catch (error) { fail(error); }
        };
        look();
    });";

pub(crate) struct Page<'a> {
    browser: &'a Browser,
    window: String,
}

/// What a picture shows.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Extent {
    /// What is visible in the window.
    Window,
    /// The page from its top, up to 4,000 pixels.
    Page,
}

impl<'a> Page<'a> {
    pub(super) fn new(browser: &'a Browser, window: String) -> Self {
        Self { browser, window }
    }

    pub(super) fn browser(&self) -> &Browser {
        self.browser
    }

    /// Opens a URL in this window, and waits until it is loaded. Its server is one that pages may use.
    pub(crate) async fn open(&self, url: &str) {
        let origin = Url::parse(url).expect("a URL").origin().ascii_serialization();
        self.browser.allow_requests_to(origin);
        self.post("/url", &json!({"url": url})).await.unwrap_or_else(|error| panic!("{url}: {error}"));
    }

    pub(crate) async fn url(&self) -> String {
        let url = self.get("/url").await.expect("a URL");
        url.as_str().expect("a URL").to_owned()
    }

    /// Waits for an element, and returns its text as it is shown.
    pub(crate) async fn text_of(&self, css: &str) -> String {
        let text = self.of_element(css, "element.innerText").await;
        text.as_str().expect("text").trim().to_owned()
    }

    /// Returns the texts of all elements that there are.
    pub(crate) async fn texts_of(&self, css: &str) -> Vec<String> {
        let script = "return [...document.querySelectorAll(arguments[0])].map(element => element.innerText.trim())";
        let texts = self.run(script, json!([css])).await.unwrap_or_else(|error| panic!("{css}: {error}"));
        serde_json::from_value(texts).expect("texts")
    }

    /// Waits for an element, and returns one of its attributes.
    pub(crate) async fn attribute_of(&self, css: &str, name: &str) -> Option<String> {
        let value = self.of_element(css, &format!("element.getAttribute({})", json!(name))).await;
        value.as_str().map(str::to_owned)
    }

    /// Waits for an element, and clicks on it. Waits for the page to which this leads.
    pub(crate) async fn click(&self, css: &str) {
        self.with_element(css, async |element| self.post(&format!("{element}/click"), &json!({})).await).await;
    }

    /// Waits for an input, and replaces its text by typing.
    pub(crate) async fn type_into(&self, css: &str, text: &str) {
        self.with_element(css, async |element| {
            self.post(&format!("{element}/clear"), &json!({})).await?;
            self.post(&format!("{element}/value"), &json!({"text": text})).await
        })
        .await;
    }

    /// Presses keys together, such as `Enter`, `Shift+Tab` or `/`.
    pub(crate) async fn press(&self, keys: &str) {
        self.post("/actions", &pressed(keys)).await.unwrap_or_else(|error| panic!("{keys}: {error}"));
    }

    /// Presses the tabulator until an element has the focus.
    pub(crate) async fn tab_to(&self, css: &str) {
        let mut passed = Vec::new();
        for _ in 0..MOST_TABS {
            self.press("Tab").await;
            let is_there = self.run("return document.activeElement.matches(arguments[0])", json!([css])).await;
            if is_there.unwrap_or_else(|error| panic!("{css}: {error}")) == true {
                return;
            }
            passed.push(self.focused().await);
        }
        panic!("no {css} among {passed:?}");
    }

    /// Returns how the element with the focus is called, or which it is.
    pub(crate) async fn focused(&self) -> String {
        let name = "(element => element.innerText?.trim() || element.ariaLabel || element.name || element.tagName)";
        let focused = self.value_of(&format!("{name}(document.activeElement)")).await;
        focused.as_str().expect("text").to_owned()
    }

    /// Waits until there is an element.
    pub(crate) async fn wait_for(&self, css: &str) {
        self.wait_until(&format!("document.querySelector({}) !== null", json!(css))).await;
    }

    /// Waits until an expression of JavaScript is true. The page may be left meanwhile.
    pub(crate) async fn wait_until(&self, condition: &str) {
        let script = format!("const holds = () => Boolean({condition});{LOOK_REPEATEDLY}");
        until(condition, async || self.unless_passing(self.run(&script, json!([])).await) == true).await;
    }

    /// Returns the value of an expression of JavaScript.
    pub(crate) async fn value_of(&self, expression: &str) -> Value {
        let value = self.run(&format!("return ({expression})"), json!([])).await;
        value.unwrap_or_else(|error| panic!("{expression}: {error}"))
    }

    /// Gives the page this many pixels. A narrow page is shown as on a phone.
    pub(crate) async fn resize(&self, width: u32, height: u32) {
        let size = json!({
            "width": width, "height": height, "screenWidth": width, "screenHeight": height,
            "deviceScaleFactor": 1, "mobile": width < PHONE_WIDTH,
        });
        self.command("Emulation.setDeviceMetricsOverride", size).await;
    }

    /// Returns whether the page must be scrolled sideways.
    pub(crate) async fn is_too_wide(&self) -> bool {
        // A phone zooms out until a wide page fits, so the window itself says nothing.
        self.value_of("document.documentElement.scrollWidth > screen.width").await == true
    }

    /// Returns the tables that are wider than their frame, which hides that by scrolling.
    pub(crate) async fn cut_tables(&self) -> Vec<String> {
        let wide = "[...document.querySelectorAll('.table')].filter(table => table.checkVisibility({contentVisibilityAuto: true}) && table.scrollWidth > table.clientWidth)";
        let cut = format!(
            "{wide}.map(table => `${{table.scrollWidth - table.clientWidth}} px of ${{table.innerText.slice(0, 200)}}`)"
        );
        serde_json::from_value(self.value_of(&cut).await).expect("texts")
    }

    /// Lets the page believe that its reader prefers dark or light colours.
    pub(crate) async fn prefer_dark(&self, dark: bool) {
        let scheme = if dark { "dark" } else { "light" };
        let features = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.command("Emulation.setEmulatedMedia", features).await;
    }

    /// Takes the network from the page, or gives it back.
    pub(crate) async fn set_offline(&self, offline: bool) {
        let conditions = json!({"offline": offline, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1});
        self.command("Network.enable", json!({})).await;
        self.command("Network.emulateNetworkConditions", conditions).await;
    }

    /// Presses the keys of a text one after the other, whatever has the focus.
    pub(crate) async fn type_keys(&self, text: &str) {
        for character in text.chars() {
            self.press(character.encode_utf8(&mut [0; 4])).await;
        }
    }

    /// Sets a cookie for the server of the page.
    pub(crate) async fn set_cookie(&self, name: &str, value: &str) {
        let cookie = json!({"cookie": {"name": name, "value": value, "path": "/", "httpOnly": true}});
        self.post("/cookie", &cookie).await.unwrap_or_else(|error| panic!("{name}: {error}"));
    }

    /// Writes a picture (PNG) into a file.
    pub(crate) async fn screenshot(&self, path: &Path, extent: Extent) {
        let mut options = json!({"format": "png"});
        if let Extent::Page = extent {
            let size = self.command("Page.getLayoutMetrics", json!({})).await["cssContentSize"].take();
            let height = size["height"].as_f64().expect("a height").min(TALLEST_PICTURE);
            options["captureBeyondViewport"] = true.into();
            options["clip"] = json!({"x": 0, "y": 0, "width": size["width"], "height": height, "scale": 1});
        }
        let picture = self.command("Page.captureScreenshot", options).await;
        let bytes = STANDARD.decode(picture["data"].as_str().expect("a picture")).expect("base64");
        fs::write(path, bytes).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }

    /// Runs a script in the page. The content security policy of the page does not apply to it.
    pub(super) async fn run(&self, script: &str, arguments: Value) -> Result<Value, DriverError> {
        self.post("/execute/sync", &json!({"script": script, "args": arguments})).await
    }

    /// Returns what the pages of this browser have logged since the last call.
    pub(super) async fn log(&self, kind: &str) -> Vec<Value> {
        let mut entries = self.post("/se/log", &json!({"type": kind})).await.expect("a log");
        entries.as_array_mut().map(std::mem::take).expect("entries")
    }

    /// Sends a command of the Chrome DevTools Protocol.
    async fn command(&self, name: &str, parameters: Value) -> Value {
        let outcome = self.post("/goog/cdp/execute", &json!({"cmd": name, "params": parameters})).await;
        outcome.unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    async fn get(&self, path: &str) -> Result<Value, DriverError> {
        self.browser.send(&self.window, Method::GET, path, None).await
    }

    async fn post(&self, path: &str, body: &Value) -> Result<Value, DriverError> {
        self.browser.send(&self.window, Method::POST, path, Some(body)).await
    }

    /// Waits for an element, and returns the value of an expression over `element`.
    async fn of_element(&self, css: &str, expression: &str) -> Value {
        let script = format!("const element = document.querySelector(arguments[0]); return element && [{expression}];");
        let mut found = Value::Null;
        until(&format!("there is {css}"), async || {
            found = self.unless_passing(self.run(&script, json!([css])).await);
            !found.is_null()
        })
        .await;
        found[0].take()
    }

    /// Waits for an element and does something with it; again, if the page has replaced it meanwhile.
    async fn with_element(&self, css: &str, deed: impl AsyncFn(String) -> Result<Value, DriverError>) {
        until(&format!("there is {css}"), async || {
            let found = self.post("/element", &json!({"using": "css selector", "value": css})).await;
            let outcome = match found {
                Ok(element) => deed(format!("/element/{}", element[ELEMENT].as_str().expect("an element"))).await,
                Err(error) => Err(error),
            };
            match outcome {
                Err(error) if error.is_passing() => false,
                Err(error) => panic!("{css}: {error}"),
                Ok(_) => true,
            }
        })
        .await;
    }

    /// Returns the value, or `null` if the page was being left.
    fn unless_passing(&self, outcome: Result<Value, DriverError>) -> Value {
        match outcome {
            Err(error) if error.is_passing() => Value::Null,
            other => other.unwrap_or_else(|error| panic!("{}: {error}", self.window)),
        }
    }
}
