//! A JSON document of an event on its page: indented or as it was sent, open if it is small, cut if it is huge.

use std::borrow::Cow;

use actix_web::HttpResponse;
use actix_web::http::header;
use maud::{Markup, html};

use super::json_text::{cut, pretty};
use super::parts::{count, with_parameter};
use super::viewer::Viewer;
use crate::domain::ids::EventId;
use crate::domain::json::RawJson;
use crate::domain::redaction::Redaction;
use crate::http::page::NO_SNIFF;
use crate::store::tables::events::EventDetails;

/// The size up to which a document is open at first, and the size at which it is cut.
const OPEN_BYTES: usize = 4 * 1024;
const SHOWN_BYTES: usize = 256 * 1024;

/// A document of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Document {
    Payload,
    Result,
    Progress,
}

impl Document {
    /// Returns its field in the API.
    pub(super) fn field(self) -> &'static str {
        match self {
            Document::Payload => "payload",
            Document::Result => "result",
            Document::Progress => "progress",
        }
    }

    fn label(self) -> &'static str {
        match self {
            Document::Payload => "Payload",
            Document::Result => "Result",
            Document::Progress => "Progress",
        }
    }

    /// Returns the document of an event as the viewer may see it, or `None` if it has none.
    fn of<'a>(self, details: &'a EventDetails, redaction: &Redaction) -> Option<Cow<'a, RawJson>> {
        let (event, work) = (&details.row.event, &details.row.work);
        let column = match self {
            Document::Payload => event.payload.as_ref(),
            Document::Result => work.result.as_ref(),
            Document::Progress => work.progress.as_ref(),
        };
        let json = &column?.0;
        Some(redaction.redact(self.field(), json).map_or(Cow::Borrowed(json), Cow::Owned))
    }

    /// Returns the document for the page. Its copy and its download have every byte of it.
    pub(super) fn show(self, viewer: &Viewer, details: &EventDetails, redaction: &Redaction, raw: bool) -> Markup {
        let Some(json) = self.of(details, redaction) else { return html! {} };
        let (field, text) = (self.field(), json.as_str());
        if !viewer.may_reveal() {
            return html! { h2 #(field) { (self.label()) } p.muted { "Hidden: the key has no scope reveal." } };
        }
        let whole = viewer.link(&format!("/ui/events/{}?part={field}", details.row.event.id));
        let address =
            with_parameter(&with_parameter(&viewer.address, "part", ""), "show", if raw { "" } else { "raw" });
        let (shown, is_whole) = match raw {
            true => cut(text, SHOWN_BYTES),
            false => pretty(text, SHOWN_BYTES),
        };
        html! {
            div.actions.document {
                h2 #(field) { (self.label()) }
                a href=(format!("{address}#{field}")) { @if raw { "pretty" } @else { "raw" } }
                a href=(whole) download { "download" }
                button type="button" data-copy-from=(whole) { "Copy" }
            }
            details id=(format!("{field}-text")) open[text.len() <= OPEN_BYTES] {
                summary { (count(text.len() as i64, true)) " bytes" }
                pre class=(if raw { "text" } else { "json" }) tabindex="0" aria-label=(self.label()) { (shown) }
                @if !is_whole { p.muted { "Cut here. The " a href=(whole) download { "download" } " has all of it." } }
            }
        }
    }

    /// Returns the response with the document, byte for byte, or `None` if the event has none.
    pub(super) fn respond(self, id: EventId, details: &EventDetails, redaction: &Redaction) -> Option<HttpResponse> {
        let json = self.of(details, redaction)?;
        let name = format!("attachment; filename=\"event-{id}-{}.json\"", self.field());
        let mut response = HttpResponse::Ok();
        response.content_type("application/json").insert_header(NO_SNIFF);
        response.insert_header((header::CACHE_CONTROL, "no-store")).insert_header((header::CONTENT_DISPOSITION, name));
        Some(response.body(json.as_str().to_owned()))
    }
}
