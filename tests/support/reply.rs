//! A response, read to its end, or to the end of its first piece if it is a stream.

use serde_json::Value;

#[derive(Debug)]
pub(crate) struct Reply {
    pub status: u16,
    pub headers: reqwest::header::HeaderMap,
    pub text: String,
}

impl Reply {
    pub(crate) async fn of(mut response: reqwest::Response) -> Self {
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let is_stream = headers.get("content-type").is_some_and(|kind| kind == "text/event-stream");
        let text = if is_stream {
            let piece = response.chunk().await.expect("a piece").unwrap_or_default();
            String::from_utf8(piece.into()).expect("a piece that is text")
        } else {
            response.text().await.expect("a body that is text")
        };
        Reply { status, headers, text }
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error} in {self:?}"))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().expect("a header that is text"))
    }

    /// Asserts the status.
    #[track_caller]
    pub(crate) fn expect(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{}", self.text);
        self
    }

    /// Asserts a problem document with this status and code.
    #[track_caller]
    pub(crate) fn problem(self, status: u16, code: &str) -> Value {
        let reply = self.expect(status);
        assert_eq!(reply.header("content-type"), Some("application/problem+json"));
        let body = reply.json();
        assert_eq!(body["code"], code, "{body}");
        assert_eq!(body["status"], status, "{body}");
        assert_eq!(body["type"], format!("/problems/{code}"), "{body}");
        for member in ["title", "detail", "error"] {
            assert!(body[member].is_string(), "{member} in {body}");
        }
        assert!(body["retryable"].is_boolean(), "{body}");
        assert!(["none", "recorded", "unknown"].map(Value::from).contains(&body["effect"]), "{body}");
        body
    }

    /// Asserts a 400 that names exactly these fields.
    #[track_caller]
    pub(crate) fn names(self, fields: &[&str]) {
        let body = self.problem(400, "invalid_request");
        let errors = body["errors"].as_array().expect("errors");
        let mut named: Vec<&str> = errors.iter().map(|error| error["field"].as_str().expect("a field")).collect();
        let mut wanted = fields.to_vec();
        named.sort_unstable();
        wanted.sort_unstable();
        assert_eq!(named, wanted, "{body}");
    }
}
