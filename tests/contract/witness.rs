//! Checks every response of a server: it must be documented, fit its schema and carry its headers.
//! Records which documented responses were given.

use std::collections::BTreeSet;
use std::sync::Mutex;

use serde_json::Value;

use super::document::{Document, Operation};
use crate::support::{App, Reply};

/// Headers of HTTP itself.
const OF_HTTP: [&str; 5] = ["connection", "content-length", "content-type", "date", "transfer-encoding"];

/// Responses that every operation may give and none lists.
const EDGE: [(u16, &str); 2] = [(403, "OriginNotAllowed"), (421, "HostNotAllowed")];

/// The responses and codes given so far, by all servers of a test.
pub(super) struct Coverage {
    pub document: Document,
    answers: Mutex<BTreeSet<(Operation, u16)>>,
    codes: Mutex<BTreeSet<String>>,
}

impl Coverage {
    pub(super) fn new() -> Self {
        Coverage { document: Document::load(), answers: Mutex::default(), codes: Mutex::default() }
    }

    /// Returns the documented responses that were not given.
    pub(super) fn unseen_responses(&self) -> Vec<(Operation, u16)> {
        let seen = self.answers.lock().expect("no panic");
        let documented = self.document.operations().into_iter().flat_map(|operation| {
            let statuses = self.document.keys(&format!("{}/responses", operation.pointer()));
            statuses.into_iter().map(move |status| (operation.clone(), status.parse().expect("a status")))
        });
        documented.filter(|answer| !seen.contains(answer)).collect()
    }

    /// Returns the documented codes that were not given.
    pub(super) fn unseen_codes(&self) -> Vec<&str> {
        let seen = self.codes.lock().expect("no panic");
        let codes = self.document.strings("/components/schemas/ErrorCode/enum");
        codes.into_iter().filter(|code| !seen.contains(*code)).collect()
    }

    /// Checks a response.
    #[track_caller]
    fn check(&self, method: &str, path: &str, reply: &Reply) {
        let response = self.response_for(method, path, reply.status);
        self.check_headers(&response, reply);
        let content_type = reply.header("content-type").unwrap_or_default();
        let essence = content_type.split(';').next().unwrap_or_default();
        let Some(content) = self.document.inside(&response, "content") else {
            assert!(reply.text.is_empty(), "{method} {path} answers {} with a body: {reply:?}", reply.status);
            return;
        };
        let media = self.document.inside(&content, essence);
        let media = media.unwrap_or_else(|| panic!("{method} {path} answers {essence:?}: {reply:?}"));
        let body = match essence.rsplit(['/', '+']).next() {
            Some("json") => reply.json(),
            Some("yaml") => serde_saphyr::from_str(&reply.text).expect("YAML"),
            _ => Value::from(reply.text.as_str()),
        };
        self.document.validate(&format!("{media}/schema"), &body);
        if let Some(code) = body["code"].as_str() {
            self.codes.lock().expect("no panic").insert(code.to_owned());
        }
    }

    /// Returns where the document describes this response.
    #[track_caller]
    fn response_for(&self, method: &str, path: &str, status: u16) -> String {
        let Some(documented) = self.path_for(path) else {
            assert_eq!(status, 404, "{path} is in no document");
            return "/components/responses/RouteNotFound".into();
        };
        let operation = Operation { method: method.to_owned(), path: documented };
        if self.document.get(&operation.pointer()).is_none() {
            let response = if method == "OPTIONS" { (204, "Options") } else { (405, "MethodNotAllowed") };
            assert_eq!(status, response.0, "{operation:?} is not documented");
            return format!("/components/responses/{}", response.1);
        }
        let responses = format!("{}/responses", operation.pointer());
        // Decided before routing, and therefore the same for all routes.
        if let Some((_, edge)) = EDGE.iter().find(|(code, _)| *code == status) {
            return format!("/components/responses/{edge}");
        }
        let response = self.document.inside(&responses, &status.to_string());
        let response = response.unwrap_or_else(|| panic!("{operation:?} answers {status}, which is not documented"));
        self.answers.lock().expect("no panic").insert((operation, status));
        response
    }

    /// Returns the documented path that a real path matches; fixed paths come first.
    fn path_for(&self, path: &str) -> Option<String> {
        let documented = self.document.keys("/paths");
        let stands_for = |pattern: &&String| {
            let (ours, theirs): (Vec<_>, Vec<_>) = (path.split('/').collect(), pattern.split('/').collect());
            ours.len() == theirs.len() && ours.iter().zip(theirs).all(|(our, their)| *our == their || their == "{id}")
        };
        documented.iter().find(|known| *known == path).or_else(|| documented.iter().find(stands_for)).cloned()
    }

    #[track_caller]
    fn check_headers(&self, response: &str, reply: &Reply) {
        let headers = self.document.inside(response, "headers").expect("every answer has headers");
        let documented = self.document.keys(&headers);
        for name in &documented {
            let header = self.document.inside(&headers, name).expect("a header");
            match reply.header(name) {
                Some(value) => {
                    let schema = format!("{header}/schema");
                    let is_number = self.document.at(&schema)["type"] == "integer";
                    let number = value.parse::<i64>().ok().filter(|_| is_number);
                    self.document.validate(&schema, &number.map_or_else(|| value.into(), Value::from));
                }
                None => assert_ne!(self.document.at(&header)["required"], true, "{name} is missing in {reply:?}"),
            }
        }
        for name in reply.headers.keys().map(reqwest::header::HeaderName::as_str).filter(|name| !OF_HTTP.contains(name))
        {
            assert!(documented.iter().any(|known| known.eq_ignore_ascii_case(name)), "{name} is not in {response}");
        }
    }
}

/// A server whose responses are all checked.
pub(super) struct CheckedServer<'a> {
    pub app: App,
    pub coverage: &'a Coverage,
}

impl<'a> CheckedServer<'a> {
    pub(super) fn of(app: App, coverage: &'a Coverage) -> Self {
        CheckedServer { app, coverage }
    }

    /// Sends a request and checks the response.
    pub(super) async fn send(&self, request: reqwest::RequestBuilder) -> Reply {
        let request = request.build().expect("a request");
        let (method, path) = (request.method().to_string(), request.url().path().to_owned());
        let sent = self.app.client.execute(request).await;
        let reply = Reply::of(sent.unwrap_or_else(|error| panic!("{method} {path}: {error:?}"))).await;
        self.coverage.check(&method, &path, &reply);
        reply
    }

    /// Builds a request without sending it.
    pub(super) fn request(&self, method: &str, path: &str) -> reqwest::RequestBuilder {
        self.app.client.request(method.parse().expect("a method"), format!("{}{path}", self.app.base))
    }

    pub(super) async fn get(&self, path: &str) -> Reply {
        self.send(self.request("GET", path)).await
    }

    pub(super) async fn post(&self, path: &str, body: &Value) -> Reply {
        self.send(self.request("POST", path).json(body)).await
    }

    pub(super) async fn post_empty(&self, path: &str) -> Reply {
        self.send(self.request("POST", path)).await
    }

    /// Builds an operation's request on an event, with its example body if it has one.
    pub(super) fn example_of(&self, operation: &Operation, id: i64, query: &str) -> reqwest::RequestBuilder {
        let request = self.request(&operation.method, &format!("{}{query}", operation.with_id(id)));
        match self.coverage.document.request_example(operation) {
            Some(body) => request.json(body),
            None => request,
        }
    }
}
