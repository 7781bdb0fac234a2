//! The log: what is written about requests and about notable events, how much of it, and what never is.

mod limits;
mod notable;
mod requests;

use serde_json::Value;

use crate::support::process::{Process, waybill};
use crate::support::{database, until};

/// Starts a server in a process of its own on a new database, with these flags. Returns it with the URL of the database.
async fn start(flags: &[&str]) -> (Process, String) {
    let url = database::migrated().await;
    let mut arguments = vec!["serve", "--bind", "127.0.0.1:0", "--database-url", &url];
    arguments.extend(["--webhook-allow", "127.0.0.0/8"]);
    arguments.extend(flags);
    let server = tokio::task::block_in_place(|| Process::start(waybill(&arguments)));
    (server, url)
}

/// Returns the lines of a log in JSON that have this message.
fn lines_about(server: &Process, message: &str) -> Vec<Value> {
    let log = server.stderr();
    let whole = log.rfind('\n').map_or("", |end| &log[..end]);
    let lines = whole.lines().map(|line| serde_json::from_str::<Value>(line).expect(line));
    lines.filter(|line| line["message"] == message).collect()
}

/// Waits for a line with this message, and returns it.
async fn line_about(server: &Process, message: &str) -> Value {
    let mut found = Vec::new();
    until(message, async || {
        found = lines_about(server, message);
        !found.is_empty()
    })
    .await;
    found.swap_remove(0)
}
