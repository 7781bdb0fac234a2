//! Follows the cursors of a list.

use serde_json::Value;

use super::{App, Reply};

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
