//! One delivery: its facts and its attempts.

use actix_web::{HttpRequest, HttpResponse};
use maud::{Markup, html};

use super::asking::{AskingAction, ReasonIn};
use super::attempts::attempts_table;
use super::frame::{Section, respond};
use super::parts::{Action, empty, exact_time, time};
use super::push_parts::{dead_letter_link, delivery_state, event_name, next_attempt, subscription_link};
use super::viewer::Viewer;
use crate::domain::address::masked;
use crate::domain::status::Status;
use crate::error::Error;
use crate::http::body::path_id;
use crate::http::deliveries::{ATTEMPTS_PER_DELIVERY, DeliveryView};
use crate::http::redaction::redaction_for;
use crate::store::lists::push_context::{PushContext, read_push_context};
use crate::store::lists::pushes::{PushRow, get_push};
use crate::store::tables::event_log::LogEntry;
use crate::store::tables::push_log::attempts_of_push;

/// `GET /ui/deliveries/{id}`: shows a delivery.
pub(crate) async fn delivery_page(mut viewer: Viewer, request: HttpRequest) -> Result<HttpResponse, Error> {
    let id = path_id(&request).await?;
    viewer.take_query().finish()?;
    let mut conn = viewer.engine.database().connection().await?;
    let row = get_push(&mut conn, &viewer.scope, id).await?.ok_or(Error::DeliveryNotFound(id))?;
    let attempts = attempts_of_push(&mut conn, &viewer.scope, id, row.created_at, ATTEMPTS_PER_DELIVERY).await?;
    let (event, subscription) = ([row.event_id].into(), [row.subscription_id].into());
    let context = read_push_context(&mut conn, &viewer.scope, &event, &subscription).await?;
    drop(conn);
    let redaction = redaction_for(&viewer.engine, &viewer.scope, &viewer.principal).await?;
    let delivery = DeliveryView::of(&row).for_reader(&viewer.principal).redacted(&redaction);
    let content = content(&viewer, &row, &delivery, &context, &attempts);
    Ok(respond(&request, &viewer, Section::Deliveries, &format!("Delivery {id}"), content))
}

fn content(
    viewer: &Viewer,
    row: &PushRow,
    delivery: &DeliveryView<'_>,
    context: &PushContext,
    attempts: &[LogEntry],
) -> Markup {
    html! {
        div.head {
            span data-live="state" { (delivery_state(row, delivery, context)) }
            h1 { "Delivery " (row.id) }
            @if viewer.may_operate() { div.actions data-live="actions" { (actions(viewer, row)) } }
        }
        div.columns {
            section aria-label="Attempts" data-live="attempts" {
                h2 { "Attempts" }
                @if attempts.is_empty() { (empty("It was not sent yet.", None)) }
                @else { (attempts_table(viewer, attempts, false)) }
            }
            section aria-label="Facts" {
                h2 { "Facts" }
                div data-live="facts" { (facts(viewer, row, delivery, context)) }
            }
        }
    }
}

/// Returns the buttons of what can be done with a delivery in its state.
fn actions(viewer: &Viewer, row: &PushRow) -> Markup {
    let id = row.id;
    let own = viewer.link(&format!("/ui/deliveries/{id}"));
    let button = |label, verb: &str, question: &str| {
        let action = Action {
            label,
            method: "POST",
            path: format!("/deliveries/{id}/{verb}"),
            body: None,
            question: question.to_owned(),
            is_danger: verb != "retry",
        };
        AskingAction { action, reason: Some(ReasonIn::Query), shows_answer: false, next: Some(own.clone()) }.button()
    };
    html! {
        @match row.status.0 {
            Status::Failed | Status::Cancelled => {
                (button("Retry", "retry", "The delivery becomes PENDING again, with all its attempts before it."))
                @if row.status.0 == Status::Failed && row.ordering_key.is_some() {
                    (button("Cancel", "cancel", "If it blocks its ordering key, later deliveries go on without it."))
                }
            }
            Status::Pending => {
                (button("Cancel", "cancel", "The delivery is not sent any more."))
                (button("Dead-letter", "dead-letter", "The delivery is given up and kept as a dead letter. A reason is required."))
            }
            Status::Processing => { (button("Cancel", "cancel", "It is being sent. If that fails, it is not tried again.")) }
            Status::Completed => {}
        }
        button type="button" data-curl data-method="GET" data-path=(format!("/deliveries/{id}")) { "Copy as curl" }
    }
}

fn facts(viewer: &Viewer, row: &PushRow, delivery: &DeliveryView<'_>, context: &PushContext) -> Markup {
    // It may have been deleted.
    let subscription = context.subscription(row.subscription_id);
    html! {
        dl.facts {
            dt { "id" } dd.mono { (row.id) }
            dt { "event_id" } dd { (event_name(viewer, row.event_id, context)) }
            dt { "subscription_id" } dd {
                (subscription_link(viewer, row.subscription_id)) " "
                @match subscription { Some(known) => bdi { (known.name.as_deref().unwrap_or_default()) }, None => "(deleted)" }
            }
            @if let Some(subscription) = subscription { dt { "url" } dd.mono { (masked(&subscription.url)) } }
            dt { "attempts_made" } dd { (delivery.attempts_made) " of " (delivery.max_attempts) }
            @if let Some(at) = next_attempt(viewer, delivery) { dt { "next_attempt_at" } dd { (exact_time(at)) " (" (time(at)) ")" } }
            @if let Some(at) = &delivery.lease_expires_at { dt { "lease_expires_at" } dd { (time(at.0)) } }
            @if let Some(key) = delivery.ordering_key { dt { "ordering_key" } dd.mono { (key) } }
            @if let Some(reason) = delivery.cancel_reason { dt { "cancel_reason" } dd { (reason) } }
            @if let Some(error) = delivery.last_error { dt { "last_error" } dd { (error) } }
            @for field in delivery.hidden.into_iter().flatten() {
                dt { (field) }
                dd.muted { @if viewer.may_reveal() { "redacted" } @else { "hidden: the key has no scope reveal" } }
            }
            @if let Some(id) = delivery.replay_of { dt { "replay_of" } dd { (dead_letter_link(viewer, id)) } }
            dt { "created_at" } dd { (exact_time(row.created_at)) " (" (time(row.created_at)) ")" }
            dt { "updated_at" } dd { (exact_time(row.updated_at)) " (" (time(row.updated_at)) ")" }
            dt { "dead letters" }
            dd { a href=(viewer.link(&format!("/ui/dead-letters?event_id={}&subscription_id={}", row.event_id, row.subscription_id))) { "of this delivery" } }
        }
    }
}
