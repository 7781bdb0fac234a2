//! The forms that create and change a subscription, with a check of what is written against a real event.

use actix_web::{HttpRequest, HttpResponse};
use maud::{Markup, html};
use serde_json::{Map, Value};

use super::frame::{Section, respond};
use super::parts::event_link;
use super::viewer::Viewer;
use crate::domain::ids::EventId;
use crate::domain::subscription::SubscriptionSpec;
use crate::error::Error;
use crate::http::body::path_id;
use crate::http::subscriptions::view;
use crate::store::lists::events::{EventFilter, list_events};
use crate::store::lists::pages::Page;
use crate::store::lists::subscription_health::attempts_of_subscription;
use crate::store::tables::subscriptions::get_subscription;

/// How a field is written and sent.
enum Control {
    Line,
    Number,
    Choice(&'static [&'static str]),
    Text { rows: u8 },
}

/// A field of the form. Its name is that of the API, with dots for objects in objects.
struct Field {
    name: &'static str,
    control: Control,
    /// How its text becomes JSON, as `forms.js` knows it.
    kind: &'static str,
    hint: &'static str,
}

const fn field(name: &'static str, control: Control, kind: &'static str, hint: &'static str) -> Field {
    Field { name, control, kind, hint }
}

const WHERE: &[Field] = &[
    field("name", Control::Line, "text", "A name for people."),
    field("url", Control::Line, "text", "http or https, without credentials."),
    field("method", Control::Choice(&["POST", "PUT"]), "text", ""),
];

const WHICH: &[Field] = &[
    field("event_types", Control::Line, "commas", "order.paid, user.*; empty for all"),
    field("tags", Control::Line, "commas", "All of these; empty for any."),
    field("labels", Control::Line, "json", r#"{"region": "eu"}"#),
    field(
        "filter",
        Control::Text { rows: 4 },
        "json",
        r#"{"payload.amount": {"$gt": 10}, "$not": {"payload.test": true}}"#,
    ),
];

const WHAT: &[Field] = &[
    field(
        "transform.template",
        Control::Text { rows: 5 },
        "text",
        r#"{"text": "Order {{ payload.order }} was paid"}; empty sends the payload"#,
    ),
    field("transform.content_type", Control::Line, "text", "Of a template: application/json if empty."),
    field("transform.envelope", Control::Choice(&["", "true"]), "boolean", "Instead of a template."),
    field("transform.cloudevents", Control::Choice(&["", "structured", "binary"]), "text", "Instead of a template."),
    field("transform.keep", Control::Line, "commas", "Paths of the payload: customer.id, items.0.sku"),
    field("transform.drop", Control::Line, "commas", "Paths of the payload."),
    field(
        "headers",
        Control::Text { rows: 3 },
        "json",
        r#"{"Authorization": "Bearer …", "X-Old": null}: null removes one, others stay"#,
    ),
];

const HOW: &[Field] = &[
    field("timeout_ms", Control::Number, "number", ""),
    field("max_attempts", Control::Number, "number", ""),
    field("backoff", Control::Line, "json", r#"{"strategy": "schedule", "seconds": [5, 30, 300]}"#),
    field("retry_on", Control::Line, "commas", "5xx, 429, timeout, connection"),
    field("max_concurrency", Control::Number, "number", ""),
    field("rate_per_second", Control::Number, "number", "Empty for no limit."),
    field("ordering", Control::Choice(&["none", "by_key"]), "text", ""),
    field("ordering_key_path", Control::Line, "text", "A path of the payload; empty for the event's own key."),
    field("on_exhausted", Control::Choice(&["skip", "block"]), "text", ""),
];

/// What the form is about.
struct Form {
    heading: String,
    method: &'static str,
    path: String,
    next: &'static str,
    /// The `ETag` of the version that is changed.
    if_match: Option<String>,
    /// The present values, as the API shows them.
    values: Map<String, Value>,
    /// The event to check against.
    event_id: Option<EventId>,
}

/// `GET /ui/subscriptions/new`: shows the form of a new subscription.
pub(crate) async fn new_subscription_page(mut viewer: Viewer, request: HttpRequest) -> Result<HttpResponse, Error> {
    viewer.take_query().finish()?;
    let event_id = newest_event(&viewer).await?;
    let form = Form {
        heading: "New subscription".into(),
        method: "POST",
        path: "/subscriptions".into(),
        next: "/ui/subscriptions/{id}",
        if_match: None,
        // The defaults of all settings but the URL.
        values: SubscriptionSpec::new("").to_json(),
        event_id,
    };
    Ok(respond(&request, &viewer, Section::Subscriptions, &form.heading, content(&viewer, &form)))
}

/// `GET /ui/subscriptions/{id}/edit`: shows the form of a subscription.
pub(crate) async fn edit_subscription_page(mut viewer: Viewer, request: HttpRequest) -> Result<HttpResponse, Error> {
    let id = path_id(&request).await?;
    viewer.take_query().finish()?;
    let mut conn = viewer.engine.database().connection().await?;
    let row = get_subscription(&mut conn, &viewer.scope, id).await?.ok_or(Error::SubscriptionNotFound(id))?;
    let sample = super::subscription::SAMPLE;
    let sent = attempts_of_subscription(&mut conn, &viewer.scope, id, sample, 1).await?.pop();
    drop(conn);
    let event_id = match sent {
        Some(entry) => Some(entry.event_id),
        None => newest_event(&viewer).await?,
    };
    let form = Form {
        heading: format!("Edit subscription {id}"),
        method: "PATCH",
        path: format!("/subscriptions/{id}"),
        next: "/ui/subscriptions/{id}",
        if_match: Some(format!("\"{}\"", row.version)),
        values: view(&row, None, None),
        event_id,
    };
    Ok(respond(&request, &viewer, Section::Subscriptions, &form.heading, content(&viewer, &form)))
}

/// Returns the newest event of the namespace.
async fn newest_event(viewer: &Viewer) -> Result<Option<EventId>, Error> {
    let page = Page { descending: true, after: None, limit: 1, scan: 1 };
    let mut conn = viewer.engine.database().connection().await?;
    let found = list_events(&mut conn, &viewer.scope, &EventFilter::default(), page, 0).await?;
    Ok(found.events.first().map(|row| row.event.id))
}

/// The settings that decide what matches and what is sent.
const CHECKED: &str = "event_types,tags,labels,filter,transform";

fn content(viewer: &Viewer, form: &Form) -> Markup {
    let is_new = form.if_match.is_none();
    html! {
        h1 { (form.heading) }
        form.sheet data-form data-method=(form.method) data-path=(form.path) data-next=(form.next)
            data-if-match=[form.if_match.as_deref()] data-secret=[is_new.then_some("secret")] data-null-if-empty="transform"
            data-check-path="/subscriptions/check" data-check-fields=(CHECKED) {
            (group("Where", WHERE, form))
            (group("Which events", WHICH, form))
            (group("What is sent", WHAT, form))
            (check(viewer, form))
            (group("How", HOW, form))
            @if is_new {
                label.inline { input type="checkbox" name="is_active" checked; " is_active: events are sent" }
            }
            div.actions {
                button.primary { @if is_new { "Create" } @else { "Save" } }
                button type="button" data-form-curl { "Copy as curl" }
                @if is_new { a href=(viewer.link("/ui/subscriptions")) { "Cancel" } }
                @else { a href=(viewer.link(&format!("/ui{}", form.path))) { "Cancel" } }
            }
        }
    }
}

fn group(title: &str, fields: &[Field], form: &Form) -> Markup {
    html! {
        fieldset {
            legend { (title) }
            div.fields { @for field in fields { (field.render(form)) } }
        }
    }
}

impl Field {
    fn render(&self, form: &Form) -> Markup {
        let (id, hint) = (self.name.replace('.', "-"), self.hint);
        let (hint_id, error_id) = (format!("{id}-hint"), format!("{id}-error"));
        let described = format!("{hint_id} {error_id}");
        let value = self.value(form);
        let is_wide = matches!(self.control, Control::Text { .. });
        html! {
            div class=[is_wide.then_some("whole")] {
                label for=(id) { (self.name) }
                @match &self.control {
                    Control::Choice(choices) => select #(id) name=(self.name) data-kind=(self.kind) aria-describedby=(described) {
                        @for choice in *choices {
                            option value=(choice) selected[*choice == value] { @if choice.is_empty() { "no" } @else { (choice) } }
                        }
                    },
                    Control::Text { rows } => textarea #(id) name=(self.name) rows=(rows) spellcheck="false" data-kind=(self.kind)
                        data-empty=(self.empty()) aria-describedby=(described) { (value) },
                    Control::Number | Control::Line => input #(id) type="text" name=(self.name) value=(value) spellcheck="false"
                        autocomplete="off" inputmode=[matches!(self.control, Control::Number).then_some("decimal")]
                        data-kind=(self.kind) data-empty=(self.empty()) aria-describedby=(described);,
                }
                p.hint #(hint_id) { (hint) (self.note(form).unwrap_or_default()) }
                p.error #(error_id) data-error-of=(self.name) {}
            }
        }
    }

    /// Returns what an empty field means: the default, except for what is left as it is.
    fn empty(&self) -> &'static str {
        if self.name == "headers" || self.name.contains('.') { "omit" } else { "null" }
    }

    /// Returns the names of the headers that are there. Their values cannot be read.
    fn note(&self, form: &Form) -> Option<String> {
        let names = form.values.get("header_names").and_then(Value::as_array).filter(|_| self.name == "headers")?;
        let names: Vec<&str> = names.iter().filter_map(Value::as_str).collect();
        Some(format!(". Stored: {}", if names.is_empty() { "none".into() } else { names.join(", ") }))
    }

    /// Returns the present value as somebody would write it.
    fn value(&self, form: &Form) -> String {
        // What is stored of headers cannot be read.
        if self.name == "headers" {
            return String::new();
        }
        let (first, second) =
            self.name.split_once('.').map_or((self.name, None), |(first, second)| (first, Some(second)));
        let value = form.values.get(first).and_then(|value| second.map_or(Some(value), |second| value.get(second)));
        match value {
            None | Some(Value::Null) => String::new(),
            Some(Value::String(text)) => text.clone(),
            Some(Value::Array(items)) if self.kind == "commas" => {
                items.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(", ")
            }
            Some(Value::Object(fields)) if fields.is_empty() => String::new(),
            Some(other) if matches!(self.control, Control::Text { .. }) => format!("{other:#}"),
            Some(other) => other.to_string(),
        }
    }
}

/// Returns the part of the form that checks the rest against an event.
fn check(viewer: &Viewer, form: &Form) -> Markup {
    let value = form.event_id.map(|id| id.to_string());
    html! {
        fieldset {
            legend { "Check against a real event" }
            div.actions {
                label for="check-event" { "event_id" }
                input.short #check-event type="text" inputmode="numeric" data-check-field="event_id" value=[value] autocomplete="off"
                    aria-describedby="check-hint check-error";
                button type="button" data-check { "Check" }
                @if let Some(id) = form.event_id { span { "Event " (event_link(viewer, id)) } }
            }
            p.hint #check-hint { "Nothing is stored or sent. It is checked again while you write." }
            p.error #check-error data-error-of="event_id" {}
            div data-check-result role="status" aria-live="polite" {}
        }
    }
}
