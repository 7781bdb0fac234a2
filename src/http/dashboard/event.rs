//! One event: its facts, its documents, and its life.
//!
//! While the page is open, the script asks for `?part=live`: what may change, without the payload. `?part=payload` is a
//! document as it was sent, for a copy or a download of all its bytes.

use actix_web::{HttpRequest, HttpResponse};
use maud::{Markup, html};

use super::document::Document;
use super::event_facts::facts;
use super::frame::{Section, respond, respond_part};
use super::parts::{Action, count, state, with_parameter};
use super::push_parts::held;
use super::timeline::Drawing;
use super::viewer::Viewer;
use crate::domain::api_key::KeyScope;
use crate::domain::ids::EventId;
use crate::domain::redaction::Redaction;
use crate::domain::status::Status;
use crate::error::Error;
use crate::http::body::path_id;
use crate::http::code::Code;
use crate::http::problem::Problem;
use crate::http::redaction::redaction_for;
use crate::store::lists::event_life::{EventLife, read_event_life};
use crate::store::lists::related_events::MOST_RELATED;
use crate::webhook::OutboundMessage;

/// What of the page is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// What may change.
    Live,
    /// A document, as it was sent.
    Document(Document),
}

const PARTS: &str = "live, payload, result, progress";

impl Part {
    fn parse(name: &str) -> Option<Self> {
        let documents = [Document::Payload, Document::Result, Document::Progress];
        match name {
            "live" => Some(Part::Live),
            _ => documents.into_iter().find(|document| document.field() == name).map(Part::Document),
        }
    }
}

/// `GET /ui/events/{id}`: shows an event.
pub(crate) async fn event_page(mut viewer: Viewer, request: HttpRequest) -> Result<HttpResponse, Error> {
    let id: EventId = path_id(&request).await?;
    let mut query = viewer.take_query();
    let part = query.choice("part", Part::parse, PARTS);
    let raw = query.choice("show", |name| (name == "raw").then_some(true), "raw").unwrap_or(false);
    query.finish()?;
    let mut conn = viewer.engine.database().connection().await?;
    let life = read_event_life(&mut conn, &viewer.scope, id).await?.ok_or(Error::EventNotFound(id))?;
    drop(conn);
    let redaction = redaction_for(&viewer.engine, &viewer.scope, &viewer.principal).await?;
    if let Some(Part::Document(document)) = part {
        return respond_document(&viewer, &life, &redaction, document);
    }
    let webhook_id = match life.pushes.is_empty() {
        true => None,
        false => Some(OutboundMessage::webhook_id(&viewer.engine.epoch_of(id).await?, id)),
    };
    let now = viewer.engine.time();
    let page =
        EventPage { drawing: Drawing { viewer: &viewer, life: &life, redaction: &redaction, webhook_id, now }, raw };
    if part == Some(Part::Live) {
        return Ok(respond_part(&request, page.content(false)));
    }
    let title = format!("{id} {}", life.details.row.event.title);
    Ok(respond(&request, &viewer, Section::Events, &title, page.content(true)))
}

/// Returns a document as it was sent, for those who may see it.
fn respond_document(
    viewer: &Viewer,
    life: &EventLife,
    redaction: &Redaction,
    document: Document,
) -> Result<HttpResponse, Error> {
    if !viewer.may_reveal() {
        return Err(Error::ScopeMissing(KeyScope::Reveal));
    }
    let id = life.details.row.event.id;
    let missing = || Problem::new(Code::RouteNotFound, format!("event {id} has no {}", document.field())).respond();
    Ok(document.respond(id, &life.details, redaction).unwrap_or_else(missing))
}

/// The page of an event.
struct EventPage<'a> {
    drawing: Drawing<'a>,
    /// Whether documents are shown as they were sent.
    raw: bool,
}

impl EventPage<'_> {
    /// Returns the content of the page: all of it, or only what may change.
    fn content(&self, is_whole: bool) -> Markup {
        let Drawing { viewer, life, redaction, .. } = &self.drawing;
        let event = &life.details.row.event;
        let show = |document: Document| document.show(viewer, &life.details, redaction, self.raw);
        let address = with_parameter(&viewer.address, "part", "live");
        html! {
            div data-live-from=(address) data-live-end[self.is_over()] {
                div.head {
                    span data-live="state" { (self.state()) }
                    @if is_whole { h1 dir="auto" { (event.title) } }
                    @if viewer.may_operate() { div.actions data-live="actions" { (actions(life)) } }
                }
                @if is_whole && let Some(description) = &event.description { p.description dir="auto" { (description) } }
                div.columns {
                    section aria-label="Life" data-live="life" { h2.hidden-text { "Life" } (self.drawing.timeline()) }
                    section aria-label="Facts and documents" {
                        div data-live="facts" { h2.hidden-text { "Facts" } (facts(viewer, life)) }
                        @if is_whole { (show(Document::Payload)) }
                        div data-live="result" { (show(Document::Result)) }
                        div data-live="progress" { (show(Document::Progress)) }
                    }
                }
            }
        }
    }

    /// Returns the state, and what keeps the event from being claimed.
    fn state(&self) -> Markup {
        let life = self.drawing.life;
        let (work, ahead) = (&life.details.row.work, life.related.ahead);
        html! {
            (state(work))
            @if ahead > 0 && work.status.0 == Status::Pending {
                " " span.state.blocked { (count(ahead, ahead < MOST_RELATED)) " ahead in its key" }
            }
            @if let Some(held) = life.pushes.iter().find_map(|push| held(push, &life.push_context)) { " " (held) }
        }
    }

    /// Returns whether nothing more can happen: the event is COMPLETED, and so are its pushes. One that is FAILED or
    /// CANCELLED may be retried, by somebody else as well.
    fn is_over(&self) -> bool {
        let life = self.drawing.life;
        let is_completed = |status: Status| status == Status::Completed;
        is_completed(life.details.row.work.status.0) && life.pushes.iter().all(|push| is_completed(push.status.0))
    }
}

/// Returns the buttons of what can be done with an event in its state.
fn actions(life: &EventLife) -> Markup {
    let (id, work) = (life.details.row.event.id, &life.details.row.work);
    let action = |label, verb: &str, question: &str, is_danger| Action {
        label,
        method: "POST",
        path: format!("/events/{id}/{verb}"),
        body: None,
        question: question.to_owned(),
        is_danger,
    };
    let retry = action("Retry", "retry", "The event becomes PENDING again, with all its attempts.", false);
    let reset = action("Reset", "reset", "The worker loses its lease, and the event becomes PENDING again.", true);
    let stop = action("Cancel", "cancel", "The worker is asked to stop. Until it does, it keeps its lease.", true);
    let cancel = action("Cancel", "cancel", "The event becomes CANCELLED, and is not handed out any more.", true);
    html! {
        @match work.status.0 {
            Status::Failed | Status::Cancelled => { (retry.button()) }
            Status::Processing => {
                (reset.button_with_reason())
                @if !work.cancel_requested { (stop.button_with_reason()) }
            }
            Status::Pending => { (cancel.button_with_reason()) }
            Status::Completed => {}
        }
        button type="button" data-curl data-method="GET" data-path=(format!("/events/{id}?include_logs=true")) { "Copy as curl" }
    }
}
