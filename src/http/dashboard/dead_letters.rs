//! The list of dead letters, and their replay.

use actix_web::{HttpRequest, HttpResponse};
use maud::{Markup, html};

use super::bulk::{BulkVerb, BulkWay, bulk_bar, select_all, select_one};
use super::deliveries::ROWS_PER_PAGE;
use super::filter_fields::{FilterField, filter_fields, reasons};
use super::frame::{Section, respond};
use super::parts::{empty, pager, time};
use super::push_parts::{dead_letter_link, event_name, subscription_name};
use super::viewer::Viewer;
use crate::domain::dead_letter::REASONS;
use crate::domain::history::Numbers;
use crate::error::Error;
use crate::http::dead_letters::{DeadLetterView, read_filter};
use crate::http::query::read_page;
use crate::store::lists::dead_letters::{DeadLetterFilter, DeadLetterRow, list_dead_letters};
use crate::store::lists::push_context::{PushContext, read_push_context};

const FILTERS: &[FilterField<'_>] = &[
    FilterField::Choice { name: "reason", choices: &REASONS },
    FilterField::Choice { name: "replayed", choices: &["true", "false"] },
    FilterField::Text { name: "subscription_id", placeholder: "17" },
    FilterField::Text { name: "event_id", placeholder: "4211" },
    FilterField::Text { name: "since", placeholder: "24h, or a time" },
    FilterField::Text { name: "until", placeholder: "15m, or a time" },
];

/// `GET /ui/dead-letters`: shows dead letters.
pub(crate) async fn dead_letters_page(mut viewer: Viewer, request: HttpRequest) -> Result<HttpResponse, Error> {
    let form = filter_fields(&viewer, FILTERS);
    let mut query = viewer.take_query_with_ages();
    let filter = read_filter(&mut query);
    let mut page = read_page(&mut query, ROWS_PER_PAGE);
    page.descending = true;
    let content = match query.finish() {
        Ok(()) => {
            let (page, cursors) =
                page.by_id(&viewer.engine, viewer.scope.namespace, "dead-letters", Numbers::Ids, &filter).await?;
            let mut conn = viewer.engine.database().connection().await?;
            let (rows, end) = list_dead_letters(&mut conn, &viewer.scope, &filter, page).await?;
            let events = rows.iter().map(|row| row.event_id).collect();
            let subscriptions = rows.iter().map(|row| row.subscription_id).collect();
            let context = read_push_context(&mut conn, &viewer.scope, &events, &subscriptions).await?;
            drop(conn);
            let next = cursors.next(end).await?;
            list(&viewer, &filter, &Found { rows, context }, next.as_deref())
        }
        Err(error) => html! { p.error role="alert" { (reasons(&Error::from(error))) } },
    };
    let content = html! {
        h1 { "Dead letters" }
        (form)
        (content)
    };
    Ok(respond(&request, &viewer, Section::DeadLetters, "Dead letters", content))
}

/// Dead letters, and what they are about.
struct Found {
    rows: Vec<DeadLetterRow>,
    context: PushContext,
}

fn list(viewer: &Viewer, filter: &DeadLetterFilter, found: &Found, next: Option<&str>) -> Markup {
    // A dead letter is replayed once.
    let verbs = [BulkVerb {
        label: "Replay",
        way: BulkWay::Operation { path: "/dead-letters/replay", chosen: None },
        is_danger: false,
    }];
    html! {
        div data-list {
            @if !found.rows.is_empty() && filter.replayed != Some(true) {
                div.pager { (bulk_bar(viewer, "dead letters", filter, &verbs, &html! {})) }
            }
            button.new-rows type="button" hidden {}
            @if !found.rows.is_empty() { (table(viewer, found)) }
            @else {
                div data-live="dead-letters" {
                    @if next.is_some() { (empty("No dead letter matches among those that were searched so far.", None)) }
                    @else if *filter == DeadLetterFilter::default() {
                        (empty("No dead letters. A delivery that fails for good is kept here, with what was sent and why it was given up, until it is replayed.", None))
                    }
                    @else { (empty("No dead letter matches.", None)) }
                }
            }
            (pager(viewer, next, None))
        }
    }
}

fn table(viewer: &Viewer, found: &Found) -> Markup {
    html! {
        div.table {
            table.rows data-rows {
                thead {
                    tr {
                        (select_all(viewer))
                        th { "Reason" } th { "Id" } th { "Event" } th { "Subscription" } th { "Detail" } th { "Replay" } th.right { "Given up" }
                    }
                }
                tbody data-live="dead-letters" { @for row in &found.rows { (dead_letter_row(viewer, row, &found.context)) } }
            }
        }
    }
}

fn dead_letter_row(viewer: &Viewer, row: &DeadLetterRow, context: &PushContext) -> Markup {
    let letter = DeadLetterView::of(row).for_reader(&viewer.principal);
    html! {
        tr data-id=(row.id) {
            (select_one(viewer, "dead letter", row.id))
            td.nowrap { span.state.bad { (letter.reason) } }
            td { (dead_letter_link(viewer, row.id)) }
            td.wide { span.only-phone { "event " } (event_name(viewer, row.event_id, context)) }
            td.name { span.only-phone { "to " } (subscription_name(viewer, row.subscription_id, context)) }
            td.wide { (letter.detail.unwrap_or_default()) }
            td.nowrap { (replay_state(&letter)) }
            td.right.nowrap { (time(row.created_at)) }
        }
    }
}

/// Returns whether and when a dead letter was replayed.
pub(super) fn replay_state(letter: &DeadLetterView<'_>) -> Markup {
    html! {
        @match &letter.replay {
            Some(replay) => span.state.good { "replayed " (time(replay.replayed_at.0)) },
            None => span.muted { "not replayed" },
        }
    }
}
