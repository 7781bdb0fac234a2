//! Sessions of browsers.

use reqwest::header::{COOKIE, HeaderMap, ORIGIN};

use super::{App, Reply, http_client_with};

/// The name of the cookie without TLS.
pub(crate) const COOKIE_NAME: &str = "waybill_session";

impl App {
    /// Sends the form of the login.
    pub(crate) async fn send_login(&self, fields: &str) -> Reply {
        let request = self.client.post(format!("{}/login", self.base));
        let request = request.header("content-type", "application/x-www-form-urlencoded").header(ORIGIN, &self.base);
        Reply::of(request.body(fields.to_owned()).send().await.expect("a response")).await
    }

    /// Logs in with a key. Returns the secret of the session.
    pub(crate) async fn log_in(&self, key: &str) -> String {
        session_of(&self.as_stranger().send_login(&format!("key={key}")).await.expect(303))
    }

    /// Returns the server as the pages of a browser with this session see it.
    pub(crate) fn in_session(&self, session: &str) -> App {
        let headers = [
            (COOKIE, format!("{COOKIE_NAME}={session}").parse().expect("a header")),
            (ORIGIN, self.base.parse().expect("a header")),
        ];
        let client = http_client_with(HeaderMap::from_iter(headers));
        App { server: None, url: self.url.clone(), base: self.base.clone(), client }
    }
}

/// Returns the secret in the cookie of a response.
#[track_caller]
pub(crate) fn session_of(reply: &Reply) -> String {
    let cookie = reply.header("set-cookie").unwrap_or_else(|| panic!("no cookie in {reply:?}"));
    let (_, rest) = cookie.split_once('=').expect("a value");
    rest.split(';').next().expect("a value").to_owned()
}
