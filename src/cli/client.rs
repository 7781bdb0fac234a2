//! The client of commands that ask a server and print what it answers.
//!
//! An [`Answer`] keeps the text of the server, so that `--json` prints every number as the server wrote it.

use std::collections::BTreeMap;

use reqwest::Method;
use serde_json::Value;
use serde_json::value::RawValue;
use url::form_urlencoded::{Serializer, byte_serialize};

use super::error::CliError;
use crate::client::{Client, ClientError};
use crate::config::{ConnectionArgs, PageArgs, ServerArgs};

/// The number of items that one request lists.
const PAGE: usize = 500;

/// The most items of `--all`.
const MAX_ITEMS: usize = 100_000;

/// The most pages without an item that one command reads: a search goes on from there with `--after`.
const MAX_EMPTY_PAGES: usize = 20;

/// A server that commands ask.
#[derive(Debug, Clone)]
pub(crate) struct ApiClient(Client);

/// What the server answered: its text, and the value of it.
#[derive(Debug)]
pub(crate) struct Answer {
    text: Box<RawValue>,
    pub value: Value,
}

/// The items of a list, from as many pages as were asked for.
#[derive(Debug, Default)]
pub(crate) struct List {
    noun: &'static str,
    pub items: Vec<Answer>,
    /// The cursor behind the last item, if there may be more.
    pub next: Option<String>,
    /// How far a search came that did not look at everything.
    pub searched_to: Option<String>,
}

/// A path with its query.
#[derive(Debug, Clone)]
pub(crate) struct Query {
    path: String,
    pairs: Vec<(String, String)>,
}

/// Returns the client of a command.
pub(crate) fn connect(args: &ConnectionArgs) -> Result<Client, ClientError> {
    let client = Client::new(&args.url, args.key.as_deref())?;
    Ok(match &args.namespace {
        Some(namespace) => client.in_namespace(namespace),
        None => client,
    })
}

impl ApiClient {
    pub(crate) fn new(args: &ServerArgs) -> Result<Self, CliError> {
        Ok(ApiClient(connect(&args.connection)?))
    }

    pub(crate) async fn get(&self, path: &str) -> Result<Answer, CliError> {
        self.call(Method::GET, path, None).await
    }

    pub(crate) async fn post(&self, path: &str, body: Option<&Value>) -> Result<Answer, CliError> {
        self.call(Method::POST, path, body.map(Value::to_string)).await
    }

    pub(crate) async fn patch(&self, path: &str, body: &Value) -> Result<Answer, CliError> {
        self.call(Method::PATCH, path, Some(body.to_string())).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Result<Answer, CliError> {
        self.call(Method::DELETE, path, None).await
    }

    /// Sends a request with a body that is JSON already, byte for byte.
    pub(crate) async fn call(&self, method: Method, path: &str, body: Option<String>) -> Result<Answer, CliError> {
        Answer::read(self.0.call(method, path, body).await?)
    }

    /// Returns the client for requests that have no verb here.
    pub(crate) fn inner(&self) -> &Client {
        &self.0
    }

    /// Reads a list page by page: as many items as were asked for, or all. `noun` is the field with the items.
    pub(crate) async fn list(&self, query: &Query, noun: &'static str, pages: &PageArgs) -> Result<List, CliError> {
        let wanted = if pages.all { MAX_ITEMS } else { pages.limit };
        let mut list = List { noun, next: pages.after.clone(), ..List::default() };
        let mut empty_pages = 0;
        loop {
            let missing = wanted - list.items.len();
            let page = query.clone().with("limit", missing.min(PAGE)).maybe("after", list.next.as_deref());
            let before = list.items.len();
            list.add(self.0.get(&page.to_string()).await?)?;
            empty_pages += usize::from(list.items.len() == before);
            if list.next.is_none() || list.items.len() >= wanted || empty_pages >= MAX_EMPTY_PAGES {
                return Ok(list);
            }
        }
    }
}

impl Answer {
    pub(crate) fn read(text: Box<RawValue>) -> Result<Self, CliError> {
        let value = match serde_json::from_str(text.get()) {
            Ok(value) => value,
            Err(_) => readable_fields(&text).map_err(|error| ClientError::Unreadable(error.to_string()))?,
        };
        Ok(Answer { text, value })
    }

    /// Returns what the server sent.
    pub(crate) fn text(&self) -> &str {
        self.text.get()
    }

    /// Returns the text of a field as the server wrote it, or `None` if there is no such field.
    pub(crate) fn field(&self, name: &str) -> Option<String> {
        let fields: BTreeMap<String, Box<RawValue>> = serde_json::from_str(self.text.get()).ok()?;
        fields.get(name).map(|field| field.get().to_owned())
    }
}

/// Returns the fields that have a value here. A payload may have numbers and depths that only its text can tell.
fn readable_fields(text: &RawValue) -> Result<Value, serde_json::Error> {
    let fields: BTreeMap<String, Box<RawValue>> = serde_json::from_str(text.get())?;
    let value = |field: &RawValue| serde_json::from_str(field.get()).unwrap_or(Value::Null);
    Ok(Value::Object(fields.into_iter().map(|(name, field)| (name, value(&field))).collect()))
}

impl List {
    /// Adds the items of a page, and goes on behind it.
    fn add(&mut self, mut page: BTreeMap<String, Box<RawValue>>) -> Result<(), CliError> {
        let unreadable = |error: serde_json::Error| ClientError::Unreadable(error.to_string());
        let items = page.remove(self.noun).ok_or_else(|| ClientError::Unreadable(format!("no {}", self.noun)))?;
        let items: Vec<Box<RawValue>> = serde_json::from_str(items.get()).map_err(unreadable)?;
        for item in items {
            self.items.push(Answer::read(item)?);
        }
        let text = |name: &str| page.get(name).and_then(|text| serde_json::from_str::<String>(text.get()).ok());
        self.next = text("next");
        self.searched_to = text("searched_to");
        Ok(())
    }

    /// Returns the values of the items.
    pub(crate) fn values(&self) -> impl Iterator<Item = &Value> {
        self.items.iter().map(|item| &item.value)
    }

    /// Returns the list as one object, as a single page would be.
    pub(crate) fn to_json(&self) -> String {
        let items = self.items.iter().map(Answer::text).collect::<Vec<_>>().join(",");
        let text = |value: &Option<String>| serde_json::to_string(value).unwrap_or_else(|_| "null".to_owned());
        let searched_to = self.searched_to.as_ref().map(|_| format!(",\"searched_to\":{}", text(&self.searched_to)));
        format!("{{\"{}\":[{items}],\"next\":{}{}}}", self.noun, text(&self.next), searched_to.unwrap_or_default())
    }
}

impl Query {
    pub(crate) fn new(path: impl Into<String>) -> Self {
        Query { path: path.into(), pairs: Vec::new() }
    }

    pub(crate) fn with(mut self, name: &str, value: impl ToString) -> Self {
        self.pairs.push((name.to_owned(), value.to_string()));
        self
    }

    /// Adds the parameter if there is a value.
    pub(crate) fn maybe(self, name: &str, value: Option<impl ToString>) -> Self {
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }
}

impl std::fmt::Display for Query {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.pairs.is_empty() {
            return f.write_str(&self.path);
        }
        let query = Serializer::new(String::new()).extend_pairs(&self.pairs).finish();
        write!(f, "{}?{query}", self.path)
    }
}

/// Returns a name as a part of a path.
pub(crate) fn segment(name: &str) -> String {
    byte_serialize(name.as_bytes()).collect::<String>().replace('+', "%20")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_and_parts_of_paths_are_encoded() {
        let query = Query::new("/events").with("text", "a+b & c=d").maybe("tags", None::<&str>).with("limit", 2);
        assert_eq!(query.to_string(), "/events?text=a%2Bb+%26+c%3Dd&limit=2");
        assert_eq!(segment("photo uploaded/ä+b"), "photo%20uploaded%2F%C3%A4%2Bb");
    }

    #[test]
    fn a_number_beyond_all_ranges_does_not_hide_the_other_fields() {
        let text = r#"{"id": 7, "payload": {"n": 1e400}}"#;
        let answer = Answer::read(serde_json::from_str(text).unwrap()).unwrap();
        assert_eq!((answer.text(), &answer.value["id"]), (text, &Value::from(7)));
        assert_eq!(answer.field("payload").as_deref(), Some(r#"{"n": 1e400}"#));
    }

    #[test]
    fn a_list_of_several_pages_is_printed_byte_for_byte() {
        let page = |text: &str| serde_json::from_str(text).unwrap();
        let mut list = List { noun: "events", ..List::default() };
        list.add(page(r#"{"events": [{"n": 1.10}], "total": 3, "next": "x"}"#)).unwrap();
        list.add(page(r#"{"events": [{"n":9007199254740993}], "next": null, "searched_to": "2026"}"#)).unwrap();
        let text = r#"{"events":[{"n": 1.10},{"n":9007199254740993}],"next":null,"searched_to":"2026"}"#;
        assert_eq!(list.to_json(), text);
    }
}
