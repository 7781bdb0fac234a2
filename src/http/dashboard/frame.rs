//! What surrounds every page: the rail, the bar, and the headers that keep the page to this server.

use actix_web::{HttpRequest, HttpResponse};
use maud::{DOCTYPE, Markup, html};

use super::assets;
use super::namespace_switch::namespace_switch;
use super::viewer::Viewer;
use crate::domain::api_key::KeyScope;
use crate::http::page;

/// Everything that a page uses comes from this server, from files of its own.
pub(super) const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
     connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// The pages in the rail, in groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Section {
    Overview,
    Events,
    Workers,
    Tags,
    Subscriptions,
    Deliveries,
    DeadLetters,
    EventTypes,
    Sources,
    Operations,
    Namespaces,
    Keys,
    Audit,
    Settings,
}

/// A page in the rail: its label, its path, and the scope that it needs.
type RailEntry = (Section, &'static str, &'static str, KeyScope);

const RAIL: &[&[RailEntry]] = &[
    &[
        (Section::Overview, "Overview", "/", KeyScope::Read),
        (Section::Events, "Events", "/ui/events", KeyScope::Read),
        (Section::Workers, "Workers", "/ui/workers", KeyScope::Read),
        (Section::Tags, "Tags", "/ui/tags", KeyScope::Read),
    ],
    &[
        (Section::Subscriptions, "Subscriptions", "/ui/subscriptions", KeyScope::Read),
        (Section::Deliveries, "Deliveries", "/ui/deliveries", KeyScope::Read),
        (Section::DeadLetters, "Dead letters", "/ui/dead-letters", KeyScope::Read),
    ],
    &[
        (Section::EventTypes, "Event types", "/ui/event-types", KeyScope::Read),
        (Section::Sources, "Sources", "/ui/sources", KeyScope::Read),
        (Section::Operations, "Operations", "/ui/operations", KeyScope::Read),
    ],
    &[
        (Section::Namespaces, "Namespaces", "/ui/namespaces", KeyScope::Admin),
        (Section::Keys, "Keys", "/ui/keys", KeyScope::Admin),
        (Section::Audit, "Audit", "/ui/audit", KeyScope::Admin),
        (Section::Settings, "Settings", "/ui/settings", KeyScope::Read),
    ],
];

/// Returns the response with a page.
pub(super) fn respond(
    request: &HttpRequest,
    viewer: &Viewer,
    section: Section,
    title: &str,
    content: Markup,
) -> HttpResponse {
    page::html(request, POLICY)
        // A page may show payloads, and a shared computer keeps what is cached.
        .insert_header(("Cache-Control", "no-store"))
        .body(document(viewer, section, title, &content).into_string())
}

/// Returns the response with a part of a page, which the script puts into it.
pub(super) fn respond_part(request: &HttpRequest, content: Markup) -> HttpResponse {
    page::html(request, POLICY).insert_header(("Cache-Control", "no-store")).body(content.into_string())
}

fn document(viewer: &Viewer, section: Section, title: &str, content: &Markup) -> Markup {
    let keys = if viewer.has_logged_in() { "required" } else { "none" };
    html! {
        (DOCTYPE)
        html lang="en" data-namespace=[viewer.namespace.as_deref()] data-keys=(keys)
            data-may-publish[viewer.may(KeyScope::Publish)] {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (title) " · Waybill" }
                script src=(assets::path_of("theme.js")) {}
                link rel="stylesheet" href=(assets::path_of("dashboard.css"));
                link rel="icon" href=(assets::path_of("icon.svg")) type="image/svg+xml";
                script src=(assets::path_of("dashboard.js")) defer {}
                script src=(assets::path_of("forms.js")) defer {}
                script src=(assets::path_of("filter.js")) defer {}
            }
            body {
                a.skip href="#page" { "Skip to the page" }
                div.frame {
                    (rail(viewer, section))
                    div {
                        (bar(viewer))
                        main #page { (content) }
                    }
                }
                div.notices role="status" aria-live="polite" {}
            }
        }
    }
}

/// The pages in the bar at the bottom of a phone. Another one that is open takes the place of the last.
const ON_PHONES: [Section; 5] =
    [Section::Overview, Section::Events, Section::Workers, Section::Tags, Section::Deliveries];

/// Returns the class of a page in the rail: on a phone, some are only shown with all others.
fn class_on_phones(of: Section, section: Section) -> Option<&'static str> {
    let is_other = |of: Section| !ON_PHONES.contains(&of);
    let gives_way = of == ON_PHONES[ON_PHONES.len() - 1] && is_other(section);
    (gives_way || is_other(of) && of != section).then_some("more")
}

fn rail(viewer: &Viewer, section: Section) -> Markup {
    html! {
        div.rail {
            a.name href=(viewer.link("/")) { "Waybill" }
            // A box that is ticked: it works without the script, too.
            label.show-more { input.hidden-text type="checkbox" name="show-more" autocomplete="off"; "More" }
            nav aria-label="Pages" {
                @for group in RAIL {
                    ul {
                        @for (of, label, path, _) in group.iter().filter(|(.., scope)| viewer.may(*scope)) {
                            li class=[class_on_phones(*of, section)] {
                                a href=(viewer.link(path)) aria-current=[(*of == section).then_some("page")] { (label) }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn bar(viewer: &Viewer) -> Markup {
    html! {
        header.bar {
            (namespace_switch(viewer))
            form.search action="/ui/events" method="get" role="search" {
                @if let Some(namespace) = &viewer.namespace { input type="hidden" name="namespace" value=(namespace); }
                input type="search" name="q" aria-label="Search events" autocomplete="off"
                    placeholder="Search events, or Ctrl-K to jump";
            }
            div.end {
                button.live.plain type="button" title="Pause or go on" data-state="on" { "live" }
                button.plain type="button" data-theme aria-label="Switch between light and dark" { "☾" }
                button.plain type="button" data-help aria-label="Keyboard" { "?" }
                @if viewer.has_logged_in() {
                    span.muted.small { (viewer.principal.name.as_deref().unwrap_or_default()) }
                    form action="/logout" method="post" { button.plain { "Log out" } }
                }
            }
        }
    }
}
