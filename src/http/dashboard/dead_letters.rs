//! The list of dead letters, and their replay.

use actix_web::{HttpRequest, HttpResponse};
use maud::{Markup, html};

use super::bulk::{BulkVerb, BulkWay, bulk_bar, select_all, select_one};
use super::deliveries::ROWS_PER_PAGE;
use super::filter_fields::{FilterField, filter_fields};
use super::frame::{Section, respond};
use super::parts::{empty, event_link, pager, time};
use super::push_parts::{dead_letter_link, subscription_link};
use super::viewer::Viewer;
use crate::domain::dead_letter::REASONS;
use crate::domain::history::Numbers;
use crate::error::Error;
use crate::http::dead_letters::{DeadLetterView, read_filter};
use crate::http::query::read_page;
use crate::store::lists::dead_letters::{DeadLetterFilter, DeadLetterRow, list_dead_letters};

const FILTERS: &[FilterField<'_>] = &[
    FilterField::Choice { name: "reason", choices: &REASONS },
    FilterField::Choice { name: "replayed", choices: &["true", "false"] },
    FilterField::Text { name: "subscription_id", placeholder: "17" },
    FilterField::Text { name: "event_id", placeholder: "4211" },
    FilterField::Text { name: "since", placeholder: "2026-03-09T08:00:00Z" },
    FilterField::Text { name: "until", placeholder: "2026-03-09T09:00:00Z" },
];

/// `GET /ui/dead-letters`: shows dead letters.
pub(crate) async fn dead_letters_page(mut viewer: Viewer, request: HttpRequest) -> Result<HttpResponse, Error> {
    let mut query = viewer.take_query();
    let filter = read_filter(&mut query);
    let mut page = read_page(&mut query, ROWS_PER_PAGE);
    page.descending = true;
    let content = match query.finish() {
        Ok(()) => {
            let (page, cursors) = page.by_id(&viewer.engine, "dead-letters", Numbers::Ids, &filter).await?;
            let mut conn = viewer.engine.database().connection().await?;
            let (rows, end) = list_dead_letters(&mut conn, &viewer.scope, &filter, page).await?;
            drop(conn);
            let next = cursors.next(end).await?;
            list(&viewer, &filter, &rows, next.as_deref())
        }
        Err(error) => html! { p.error role="alert" { (Error::from(error).to_string()) } },
    };
    let content = html! {
        h1 { "Dead letters" }
        (filter_fields(&viewer, FILTERS))
        (content)
    };
    Ok(respond(&request, &viewer, Section::DeadLetters, "Dead letters", content))
}

fn list(viewer: &Viewer, filter: &DeadLetterFilter, rows: &[DeadLetterRow], next: Option<&str>) -> Markup {
    // A dead letter is replayed once.
    let verbs = [BulkVerb {
        label: "Replay",
        way: BulkWay::Operation { path: "/dead-letters/replay", chosen: None },
        is_danger: false,
    }];
    html! {
        div data-list {
            div.pager { (bulk_bar(viewer, "dead letters", filter, if filter.replayed == Some(true) { &[] } else { &verbs }, &html! {})) }
            button.new-rows type="button" hidden {}
            @if !rows.is_empty() { (table(viewer, rows)) }
            @else if next.is_some() { (empty("No dead letter matches among those that were searched so far.", None)) }
            @else if *filter == DeadLetterFilter::default() {
                (empty("No dead letters. A delivery that fails for good is kept here, with what was sent and why it was given up, until it is replayed.", None))
            }
            @else { (empty("No dead letter matches.", None)) }
            (pager(viewer, next, None))
        }
    }
}

fn table(viewer: &Viewer, rows: &[DeadLetterRow]) -> Markup {
    html! {
        div.table {
            table.rows data-rows {
                thead {
                    tr {
                        (select_all(viewer))
                        th { "Reason" } th { "Id" } th { "Event" } th { "Subscription" } th { "Detail" } th { "Replay" } th.right { "Given up" }
                    }
                }
                tbody data-live="dead-letters" { @for row in rows { (dead_letter_row(viewer, row)) } }
            }
        }
    }
}

fn dead_letter_row(viewer: &Viewer, row: &DeadLetterRow) -> Markup {
    let letter = DeadLetterView::of(row).for_reader(&viewer.principal);
    html! {
        tr data-id=(row.id) {
            (select_one(viewer, "dead letter", row.id))
            td.nowrap { span.state.bad { (letter.reason) } }
            td { (dead_letter_link(viewer, row.id)) }
            td { span.only-phone { "event " } (event_link(viewer, row.event_id)) }
            td { span.only-phone { "to " } (subscription_link(viewer, row.subscription_id)) }
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
