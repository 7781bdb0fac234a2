//! A real Chromium, headless, driven by chromedriver through W3C WebDriver.
//!
//! ```ignore
//! let browser = Browser::start().await;                 // one of at most four at a time
//! let page = browser.open(&format!("{}/docs", app.base)).await;
//! page.click("button.retry").await;                     // waits until there is one
//! page.wait_until("document.title === 'Events'").await;
//! assert_eq!(page.text_of("h1").await, "Events");
//! page.assert_clean().await;                            // console, requests, accessibility
//! ```
//!
//! Nothing but 127.0.0.1 is reachable from these browsers. A browser serves one test at a time. A test that
//! ends well leaves it to the next one, without cookies, storage, cache and windows; one that fails ends it.

mod driver;
mod findings;
mod keys;
mod page;
mod session;

use std::collections::BTreeSet;
use std::sync::Mutex;

use reqwest::Method;
use serde_json::{Value, json};
use tokio::sync::{Semaphore, SemaphorePermit};

pub(crate) use driver::Driver;
pub(crate) use page::{Extent, Page};
pub(crate) use session::{DriverError, Session};

/// How many browsers run at the same time; each takes about 200 MB.
const MOST_BROWSERS: usize = 4;

static TURNS: Semaphore = Semaphore::const_new(MOST_BROWSERS);

/// Sessions that tests have left, by their URLs at the driver.
static IDLE: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// A browser for one test.
pub(crate) struct Browser {
    session: Session,
    /// The window in which every page but those of [`Browser::open_window`] is opened.
    first_window: String,
    /// The window that the driver's commands are for. The lock is held during each command.
    current_window: tokio::sync::Mutex<String>,
    /// The servers that the test has opened pages of.
    origins: Mutex<BTreeSet<String>>,
    _turn: SemaphorePermit<'static>,
}

impl Browser {
    /// Starts a browser, or takes one that another test has left.
    pub(crate) async fn start() -> Self {
        let turn = TURNS.acquire().await.expect("never closed");
        let left = IDLE.lock().expect("no panic under this lock").pop();
        let session = match left {
            Some(url) => Session::at(url),
            None => Session::start(Driver::shared().await).await,
        };
        session.forget_logs().await.expect("logs");
        let window = session.get("/window").await.expect("a window");
        let first_window = window.as_str().expect("a window").to_owned();
        Self {
            session,
            current_window: tokio::sync::Mutex::new(first_window.clone()),
            first_window,
            origins: Mutex::default(),
            _turn: turn,
        }
    }

    /// Opens a page in the first window, which is as wide as that of a small laptop.
    pub(crate) async fn open(&self, url: &str) -> Page<'_> {
        self.open_in(self.first_window.clone(), url).await
    }

    /// Opens a page in a window of its own. It shares cookies and storage with the others.
    pub(crate) async fn open_window(&self, url: &str) -> Page<'_> {
        let made = self.send(&self.first_window, Method::POST, "/window/new", Some(&json!({"type": "tab"}))).await;
        let made = made.expect("a window");
        self.open_in(made["handle"].as_str().expect("a handle").to_owned(), url).await
    }

    async fn open_in(&self, window: String, url: &str) -> Page<'_> {
        let page = Page::new(self, window);
        page.resize(1280, 800).await;
        page.open(url).await;
        page
    }

    /// Sends a command for a window.
    async fn send(&self, window: &str, method: Method, path: &str, body: Option<&Value>) -> Result<Value, DriverError> {
        let mut current = self.current_window.lock().await;
        if *current != window {
            self.session.post("/window", &json!({"handle": window})).await?;
            window.clone_into(&mut current);
        }
        self.session.send(method, path, body).await
    }

    fn origins(&self) -> BTreeSet<String> {
        self.origins.lock().expect("no panic under this lock").clone()
    }

    fn allow_requests_to(&self, origin: String) {
        self.origins.lock().expect("no panic under this lock").insert(origin);
    }
}

impl Drop for Browser {
    /// Leaves the page before the test ends: it may keep requests to the test's server open. The runtime of the
    /// test cannot be used any more, so another one does it.
    fn drop(&mut self) {
        let (url, first_window, origins) = (self.session.url().to_owned(), self.first_window.clone(), self.origins());
        let has_failed = std::thread::panicking();
        let leaving = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let session = Session::at(url);
                if has_failed || session.clean(&first_window, &origins).await.is_err() {
                    session.quit().await;
                } else {
                    IDLE.lock().expect("no panic under this lock").push(session.url().to_owned());
                }
            });
        });
        let _ = leaving.join();
    }
}
