//! What empty pages teach: commands that work on this very server.

use maud::{Markup, html};

use super::viewer::Viewer;

/// Returns the command that publishes an event.
pub(super) fn publish(viewer: &Viewer) -> String {
    let event = r#"{"title": "Say hello", "tags": "greetings", "payload": {"to": "world"}}"#;
    viewer.curl("POST", "/events", Some(event))
}

/// Returns the command that claims an event, and waits for one.
pub(super) fn claim(viewer: &Viewer) -> String {
    let path = "/events/subscribe?tags=greetings&worker_id=me:1&wait_seconds=30";
    viewer.curl("GET", path, None)
}

fn complete(viewer: &Viewer) -> String {
    viewer.curl("POST", "/events/ID/complete", Some(r#"{"worker_id": "me:1"}"#))
}

/// Returns what to do on a new server.
pub(super) fn first_steps(viewer: &Viewer) -> Markup {
    let steps = [
        ("publish", "Publish an event", publish(viewer)),
        ("claim", "Be a worker: claim it", claim(viewer)),
        ("complete", "Say that it is done, with its id", complete(viewer)),
    ];
    html! {
        h2 { "First steps" }
        p { "No events yet. These three commands show what a queue does; this page follows." }
        ol.steps {
            @for (id, what, command) in steps {
                li {
                    div.head { span { (what) } button.plain type="button" data-copy=(format!("step-{id}")) aria-label=(format!("Copy: {what}")) { "Copy" } }
                    pre.text id=(format!("step-{id}")) tabindex="0" { (command) }
                }
            }
        }
        p.muted { a href="/docs" { "The API" } " has everything else: webhooks, retries, ordering, schedules." }
    }
}
