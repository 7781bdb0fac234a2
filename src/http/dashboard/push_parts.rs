//! What the pages about pushes share: links, states of pushes and of subscriptions.

use maud::{Markup, html};

use super::parts::time;
use super::viewer::Viewer;
use crate::domain::ids::{DeliveryId, SubscriptionId};
use crate::http::deliveries::DeliveryView;
use crate::http::subscriptions::EndpointView;
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

/// Returns the state of a push: its status, or what it waits for.
pub(super) fn delivery_state(delivery: &DeliveryView<'_>) -> Markup {
    let is_retry = delivery.status == "PENDING" && delivery.next_attempt_at.is_some() && delivery.attempts_made > 0;
    html! {
        @if is_retry { span.state.retry { "PENDING, retry" } }
        @else { span class=(format!("state {}", delivery.status)) { (delivery.status) } }
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
