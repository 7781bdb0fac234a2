//! Lists and their cursors.

use serde_json::{Value, json};

use super::records::app_that_sends_nothing;
use super::{App, Reply};

/// All lists, each with the field that identifies its rows.
pub(crate) const LISTS: [(&str, &str); 13] = [
    ("/events", "id"),
    ("/logs", "id"),
    ("/subscriptions", "id"),
    ("/sources", "id"),
    ("/deliveries", "id"),
    ("/dead-letters", "id"),
    ("/operations", "id"),
    ("/audit", "id"),
    ("/workers", "worker_id"),
    ("/tags", "tag"),
    ("/event-types", "name"),
    ("/keys", "id"),
    ("/namespaces", "name"),
];

/// Returns a server with at least three rows in every list.
pub(crate) async fn app_with_rows() -> App {
    let app = app_that_sends_nothing().await.with_admin_key().await;
    add_rows(&app).await;
    for name in ["team-1", "team-2"] {
        app.namespace(name).await;
    }
    app
}

/// Adds at least three rows to every list of a namespace. The server must send nothing.
pub(crate) async fn add_rows(app: &App) {
    for n in 0..3 {
        app.make_key(json!({"scopes": ["read"]})).await;
        app.subscribe("http://127.0.0.1:9/hook", json!({"event_types": [format!("order.{n}")]})).await;
        app.source(json!({"verify": {"scheme": "token", "header": "x-token", "secret": "s"}})).await;
        app.publish_tagged(&format!("tag-{n}")).await;
        app.claim_one(&format!("tag-{n}"), &format!("w:{n}")).await;
        let event = app.publish_typed(&format!("order.{n}"), json!(n)).await;
        let delivery = app.only_delivery(event).await;
        app.operate_on_delivery(delivery, "dead-letter?reason=a%20test").await.expect(200);
        app.start_operation("/events/cancel", &json!({"filter": {"tags": ["unused"]}})).await;
    }
}

impl App {
    /// Requests the page of a list that a cursor leads to. `list` is a path with or without a query.
    pub(crate) async fn get_after(&self, list: &str, cursor: &str) -> Reply {
        let separator = if list.contains('?') { '&' } else { '?' };
        self.get(&format!("{list}{separator}after={}", escape(cursor))).await
    }

    /// Returns the cursor behind the first page of a list.
    pub(crate) async fn next_of(&self, list: &str) -> String {
        let page = self.get(list).await.expect(200).json();
        page["next"].as_str().unwrap_or_else(|| panic!("no cursor in {page}")).to_owned()
    }

    /// Returns all pages of a list, each with the field `key` of its rows.
    pub(crate) async fn walk(&self, list: &str, key: &str) -> Vec<Vec<Value>> {
        let mut pages = Vec::new();
        let mut page = self.get(list).await.expect(200).json();
        loop {
            assert!(pages.len() < 100, "cursors do not end: {pages:?}");
            pages.push(rows(&page).iter().map(|row| row[key].clone()).collect());
            let Some(next) = page["next"].as_str() else { return pages };
            page = self.get_after(list, next).await.expect(200).json();
        }
    }

    /// Does the same for rows with an id.
    pub(crate) async fn walk_ids(&self, list: &str) -> Vec<Vec<i64>> {
        let id = |id: Value| id.as_i64().expect("an id");
        self.walk(list, "id").await.into_iter().map(|page| page.into_iter().map(id).collect()).collect()
    }
}

/// Returns the rows of a page, whatever their noun.
fn rows(page: &Value) -> &[Value] {
    let mut members = page.as_object().expect("an object").values();
    members.find_map(Value::as_array).unwrap_or_else(|| panic!("no list in {page}"))
}

/// Escapes all that could have a meaning in a query.
fn escape(text: &str) -> String {
    let escape = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(escape).collect()
}
