//! The form that publishes an event, to try something out.

use actix_web::{HttpRequest, HttpResponse};
use maud::html;

use super::form_fields::{Field, Kind, buttons};
use super::frame::{Section, respond};
use super::viewer::Viewer;
use crate::domain::api_key::KeyScope;
use crate::domain::limits;
use crate::error::Error;

/// `GET /ui/publish`: shows the form of an event. The address may fill in its title, tags and type.
pub(crate) async fn publish_page(mut viewer: Viewer, request: HttpRequest) -> Result<HttpResponse, Error> {
    let mut query = viewer.take_query();
    let title = query.text("title", limits::TITLE_CHARS).unwrap_or_default();
    let tags = query.text("tags", limits::TITLE_CHARS).unwrap_or_default();
    let event_type = query.text("event_type", limits::NAME_CHARS).unwrap_or_default();
    query.finish()?;
    // Without the scope read there is no page of the event to go to.
    let next = viewer.may(KeyScope::Read).then_some("/ui/events/{id}");
    let content = html! {
        h1 { "Publish an event" }
        form.form data-form data-path="/events" data-next=[next] {
            (Field::new("title", Kind::Text).value(&title).hint("For people. It may be left out if there is an event_type.").render())
            (Field::new("tags", Kind::Commas).value(&tags).hint("The queues that it goes to, separated by commas. Workers ask for tags.").render())
            (Field::new("event_type", Kind::Text).value(&event_type).hint("Subscriptions select events by their type, and a declared type may have a schema.").render())
            (Field::new("payload", Kind::Json).hint("Any JSON. It is sent as it is written: numbers keep all their digits.").render())
            details {
                summary { "More fields" }
                (Field::new("description", Kind::Text).render())
                (Field::new("priority", Kind::Number).hint("Higher is handed out earlier. 0 if left empty.").render())
                (Field::new("delay_seconds", Kind::Number).hint("Seconds until it is handed out.").render())
                (Field::new("max_retries", Kind::Number).render())
                (Field::new("ordering_key", Kind::Text).hint("Events of one key are handed out one after the other.").render())
                (Field::new("correlation_id", Kind::Text).hint("Events with the same id belong together.").render())
                (Field::new("idempotency_key", Kind::Text).hint("The same event under the same key is stored once.").render())
                (Field::new("labels", Kind::Json).hint("{\"team\": \"core\"}").render())
            }
            (buttons("Publish"))
        }
    };
    Ok(respond(&request, &viewer, Section::Events, "Publish an event", content))
}
