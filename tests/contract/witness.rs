//! Checks every response of a server: it must be documented, fit its schema and carry its headers.
//! Records which documented responses were given.

use std::collections::BTreeSet;
use std::sync::Mutex;

use serde_json::Value;

use super::document::{Document, Operation};
use crate::support::{App, Reply};

/// Headers of HTTP itself, and the one that every response has.
const OF_HTTP: [&str; 7] = [
    "connection",
    "content-length",
    "content-type",
    "date",
    "transfer-encoding",
    "x-content-type-options",
    "x-request-id",
];

/// The headers that a status requires.
const REQUIRED: [(u16, &str); 3] = [(405, "allow"), (429, "retry-after"), (503, "retry-after")];

/// The responses and codes given so far, by all servers of a test.
pub(super) struct Coverage {
    pub document: Document,
    /// The operations, each with a documented status or `default`.
    answers: Mutex<BTreeSet<(Operation, String)>>,
    codes: Mutex<BTreeSet<String>>,
}

impl Coverage {
    pub(super) fn new() -> Self {
        Coverage { document: Document::load(), answers: Mutex::default(), codes: Mutex::default() }
    }

    /// Returns the documented responses that were not given.
    pub(super) fn unseen_responses(&self) -> Vec<(Operation, String)> {
        let seen = self.answers.lock().expect("no panic");
        let documented = self.document.operations().into_iter().flat_map(|operation| {
            let statuses = self.document.keys(&format!("{}/responses", operation.pointer()));
            statuses.into_iter().map(move |status| (operation.clone(), status))
        });
        documented.filter(|answer| !seen.contains(answer)).collect()
    }

    /// Returns the documented codes that were not given.
    pub(super) fn unseen_codes(&self) -> Vec<&str> {
        let seen = self.codes.lock().expect("no panic");
        let codes = self.document.error_codes().into_iter().map(|(code, ..)| code);
        codes.filter(|code| !seen.contains(*code)).collect()
    }

    /// Checks a response.
    #[track_caller]
    fn check(&self, method: &str, path: &str, reply: &Reply) {
        assert!(reply.header("x-request-id").is_some(), "{method} {path}: {reply:?}");
        for (_, name) in REQUIRED.iter().filter(|(status, _)| *status == reply.status) {
            assert!(reply.header(name).is_some(), "{name} is missing in {reply:?}");
        }
        if method == "OPTIONS" {
            assert_eq!((reply.status, reply.text.as_str()), (204, ""), "{path}");
            assert!(reply.header("allow").is_some(), "{path}");
            return;
        }
        let response = self.response_for(method, path, reply.status);
        self.check_headers(&response, reply);
        // A source says itself how its webhooks are answered: with a body, or without.
        if path.starts_with("/in/") && reply.text.is_empty() {
            return;
        }
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
            _ => Value::from(reply.text.as_str()),
        };
        if let Some(schema) = self.document.inside(&media, "schema") {
            self.document.validate(&schema, &body);
        }
        if essence == "application/problem+json" {
            assert_eq!(body["status"], reply.status, "{body}");
            self.check_code(&body, Some(reply.status));
        }
        self.check_problems_inside(&body);
    }

    /// Checks the problems in a body: they have a code, but no status, because no response had it.
    #[track_caller]
    fn check_problems_inside(&self, body: &Value) {
        let of_results = body["results"].as_array().into_iter().flatten().map(|result| &result["problem"]);
        for problem in of_results.chain([&body["claim_problem"]]).filter(|problem| !problem.is_null()) {
            assert_eq!(problem.get("status"), None, "{problem}");
            self.check_code(problem, None);
        }
    }

    /// Checks the code of a problem, and that it is documented for the status of the response.
    #[track_caller]
    fn check_code(&self, problem: &Value, status: Option<u16>) {
        let code = problem["code"].as_str().expect("a code");
        assert_eq!(problem["type"], format!("/problems/{code}"), "{problem}");
        let known = self.document.error_codes().into_iter().find(|(name, ..)| *name == code);
        let (_, documented, _) = known.unwrap_or_else(|| panic!("{code} is not documented"));
        assert_eq!(status.unwrap_or(documented), documented, "{problem}");
        self.codes.lock().expect("no panic").insert(code.to_owned());
    }

    /// Returns where the document describes this response.
    #[track_caller]
    fn response_for(&self, method: &str, path: &str, status: u16) -> String {
        let any_problem = "/components/responses/Problem".to_owned();
        let Some(documented) = self.path_for(path) else {
            assert_eq!(status, 404, "{path} is in no document");
            return any_problem;
        };
        let operation = Operation { method: method.to_owned(), path: documented };
        if self.document.get(&operation.pointer()).is_none() {
            assert_eq!(status, 405, "{operation:?} is not documented");
            return any_problem;
        }
        let responses = format!("{}/responses", operation.pointer());
        let (name, response) = if let Some(response) = self.document.inside(&responses, &status.to_string()) {
            (status.to_string(), response)
        } else {
            assert!(status >= 400, "{operation:?} answers {status}, which is not documented");
            let response = self.document.inside(&responses, "default").expect("a default response");
            ("default".to_owned(), response)
        };
        self.answers.lock().expect("no panic").insert((operation, name));
        response
    }

    /// Returns the documented path that a real path matches; fixed paths come first.
    fn path_for(&self, path: &str) -> Option<String> {
        let documented = self.document.keys("/paths");
        let matches = |pattern: &&String| {
            let (ours, theirs): (Vec<_>, Vec<_>) = (path.split('/').collect(), pattern.split('/').collect());
            let fits =
                |(our, their): (&&str, &&str)| our == their || ["{id}", "{name}", "{code}", "{token}"].contains(their);
            ours.len() == theirs.len() && ours.iter().zip(&theirs).all(fits)
        };
        documented.iter().find(|known| *known == path).or_else(|| documented.iter().find(matches)).cloned()
    }

    #[track_caller]
    fn check_headers(&self, response: &str, reply: &Reply) {
        let headers = self.document.inside(response, "headers");
        let documented = headers.as_ref().map(|headers| self.document.keys(headers)).unwrap_or_default();
        for name in &documented {
            let header = headers.as_ref().and_then(|headers| self.document.inside(headers, name)).expect("a header");
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
        let names = reply.headers.keys().map(reqwest::header::HeaderName::as_str);
        for name in names.filter(|name| !OF_HTTP.contains(name)) {
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
