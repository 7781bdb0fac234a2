//! What the pages about pushes share: links, states of pushes and of subscriptions.

use chrono::{DateTime, Utc};
use maud::{Markup, html};

use super::parts::time;
use super::viewer::Viewer;
use crate::domain::ids::{DeliveryId, EventId, SubscriptionId};
use crate::domain::status::Status;
use crate::http::deliveries::DeliveryView;
use crate::http::subscriptions::EndpointView;
use crate::store::lists::push_context::PushContext;
use crate::store::lists::pushes::PushRow;
use crate::store::tables::subscriptions::SubscriptionRow;

pub(super) fn delivery_link(viewer: &Viewer, id: DeliveryId) -> Markup {
    html! { a.mono href=(viewer.link(&format!("/ui/deliveries/{id}"))) { (id) } }
}

pub(super) fn subscription_link(viewer: &Viewer, id: SubscriptionId) -> Markup {
    html! { a.mono href=(viewer.link(&format!("/ui/subscriptions/{id}"))) { (id) } }
}

pub(super) fn dead_letter_link(viewer: &Viewer, id: i64) -> Markup {
    html! { a.mono href=(viewer.link(&format!("/ui/dead-letters/{id}"))) { (id) } }
}

/// Returns the link to a subscription, by its name if it has one.
pub(super) fn subscription_name(viewer: &Viewer, id: SubscriptionId, context: &PushContext) -> Markup {
    let name = context.subscription(id).and_then(|subscription| subscription.name.as_deref());
    html! {
        a href=(viewer.link(&format!("/ui/subscriptions/{id}"))) title=(format!("subscription {id}")) dir="auto" {
            @match name { Some(name) => (name), None => { "subscription " (id) } }
        }
    }
}

/// Returns the link to an event, with its title if it still exists.
pub(super) fn event_name(viewer: &Viewer, id: EventId, context: &PushContext) -> Markup {
    html! {
        a.mono href=(viewer.link(&format!("/ui/events/{id}"))) { (id) }
        @if let Some(title) = context.title(id) { " " bdi { (title) } }
    }
}

/// Returns what keeps a push that could be sent now from being sent, and until when. A push whose time has not come
/// waits for that alone.
pub(super) fn held(push: &PushRow, context: &PushContext) -> Option<Markup> {
    let subscription = context.subscription(push.subscription_id)?;
    let endpoint = context.endpoint(push.subscription_id);
    let view = EndpointView::of(endpoint);
    let is_later = |at: DateTime<Utc>| push.due_at.is_some_and(|due| due > at);
    let until = view.paused_until.as_ref().map(|until| until.0);
    if push.status.0 != Status::Pending || endpoint.is_some_and(|endpoint| is_later(until.unwrap_or(endpoint.now))) {
        return None;
    }
    Some(match (subscription.is_active, view.breaker, until) {
        (false, ..) => html! { span.state.warning { "held: subscription disabled" } },
        (true, "open", Some(at)) => html! { span.state.bad { "held: breaker open, tries " (time(at)) } },
        (true, "half_open", _) => html! { span.state.warning { "held: breaker half_open, one is tried" } },
        (true, _, Some(at)) => html! { span.state.retry { "held: endpoint paused, goes on " (time(at)) } },
        (true, _, None) => return None,
    })
}

/// Returns when a push is tried next, if its time has not come yet.
pub(super) fn next_attempt(viewer: &Viewer, delivery: &DeliveryView<'_>) -> Option<DateTime<Utc>> {
    delivery.next_attempt_at.as_ref().map(|at| at.0).filter(|at| *at > viewer.engine.time())
}

/// Returns the state of a push: its status, or what it waits for.
pub(super) fn delivery_state(row: &PushRow, delivery: &DeliveryView<'_>, context: &PushContext) -> Markup {
    let is_retry = delivery.status == "PENDING" && delivery.next_attempt_at.is_some() && delivery.attempts_made > 0;
    html! {
        @if is_retry { span.state.retry { "PENDING, retry" } }
        @else { span class=(format!("state {}", delivery.status)) { (delivery.status) } }
        @if let Some(held) = held(row, context) { " " (held) }
        @if delivery.cancel_requested && delivery.status == "PROCESSING" { " " span.state.warning { "cancel requested" } }
    }
}

/// Returns the state of a subscription: whether events are sent, and if not, why and until when.
pub(super) fn subscription_state(row: &SubscriptionRow, endpoint: &EndpointView) -> Markup {
    html! {
        @if !row.is_active {
            span.state.CANCELLED {
                "disabled" @if let Some(reason) = &row.inactive_reason { ": " (reason) }
            }
        } @else if endpoint.breaker == "open" {
            span.state.bad { "breaker open" @if let Some(at) = &endpoint.paused_until { ", tries " (time(at.0)) } }
        } @else if endpoint.breaker == "half_open" {
            span.state.warning { "breaker half_open" }
        } @else if let Some(at) = &endpoint.paused_until {
            span.state.retry { "paused, goes on " (time(at.0)) }
        } @else {
            span.state.good { "active" }
        }
    }
}
