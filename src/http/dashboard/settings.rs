//! The settings in force: of the namespace for everybody, of the server for administrators.

use actix_web::web::Data;
use actix_web::{HttpRequest, HttpResponse};
use maud::{Markup, html};

use super::frame::{Section, respond};
use super::namespace::usage_table;
use super::parts::{exact_time, time};
use super::viewer::Viewer;
use crate::config::in_force::{Origin, SettingInForce};
use crate::domain::api_key::KeyScope;
use crate::error::Error;
use crate::http::server_facts::ServerFacts;
use crate::http::usage::usage_of;
use crate::store::connection::version::{DatabaseVersion, read_database_version};

/// The settings that tell everybody for how long their things are kept.
const OF_EVERYBODY: [&str; 4] =
    ["--retention", "--log-retention", "--idempotency-retention", "--dead-letter-retention"];

/// `GET /ui/settings`: shows settings.
pub(crate) async fn settings_page(
    mut viewer: Viewer,
    facts: Data<ServerFacts>,
    request: HttpRequest,
) -> Result<HttpResponse, Error> {
    viewer.take_query().finish()?;
    let is_admin = viewer.may(KeyScope::Admin);
    let usage = usage_of(&viewer.engine, &viewer.principal, &viewer.scope).await?;
    let database = match is_admin {
        true => Some(read_database_version(&mut *viewer.engine.database().connection().await?).await?),
        false => None,
    };
    let settings = facts.settings.as_slice().iter();
    let settings = settings.filter(|setting| is_admin || OF_EVERYBODY.contains(&setting.name.as_str()));
    // What somebody has changed comes first: it is what one looks for.
    let (mut shown, others): (Vec<_>, Vec<_>) = settings.partition(|setting| setting.is_changed());
    shown.extend(others);
    let content = html! {
        h1 { "Settings" }
        h2 { "This server" }
        (about_server(&facts, database.as_ref()))
        h2 { "Limits of this namespace" }
        (usage_table(&usage))
        h2 { @if is_admin { "Settings in force" } @else { "What is kept how long" } }
        (table(&shown))
        @if !is_admin { p.muted { "A key with the scope admin sees all settings of the server." } }
    };
    Ok(respond(&request, &viewer, Section::Settings, "Settings", content))
}

/// Returns what a server says about itself. Where it runs is for administrators.
fn about_server(facts: &ServerFacts, database: Option<&DatabaseVersion>) -> Markup {
    html! {
        dl.facts {
            dt { "version" } dd { "Waybill " (facts.version) }
            @if let Some(database) = database {
                dt { "build" } dd { (facts.build) }
                dt { "host" } dd.mono { (facts.host) ", process " (facts.process_id) }
                dt { "started" } dd { (exact_time(facts.started_at)) " (" (time(facts.started_at)) ")" }
                dt { "database" } dd {
                    "PostgreSQL " (database.version) ", " (database.name) ", "
                    @if facts.is_database_embedded { "embedded" } @else { "external" }
                }
            }
        }
    }
}

fn table(settings: &[&SettingInForce]) -> Markup {
    html! {
        div.table tabindex="0" role="region" aria-label="Settings in force" {
            table.rows {
                thead { tr { th { "Setting" } th { "Value" } th { "Default" } th { "Description" } } }
                tbody { @for setting in settings { (setting_row(setting)) } }
            }
        }
    }
}

fn setting_row(setting: &SettingInForce) -> Markup {
    let from = match setting.origin {
        Origin::Flag => "by the flag",
        Origin::Variable => "by the variable",
        Origin::Default => "",
    };
    html! {
        tr {
            td.mono { (setting.name) @if let Some(variable) = &setting.variable { br; span.muted.small { (variable) } } }
            td.mono.value {
                @match &setting.value {
                    Some(value) if setting.is_changed() => { strong { (value) } br; span.state.retry { "changed " (from) } }
                    Some(value) => { (value) }
                    None => { span.muted { "not set" } }
                }
            }
            td.default data-label="default:" { (setting.default.as_deref().unwrap_or_default()) }
            td.description { (prose(&setting.description)) }
        }
    }
}

/// Returns a text of the help, in which backquotes stand around what one types.
fn prose(text: &str) -> Markup {
    html! {
        @for (place, part) in text.split('`').enumerate() {
            @if place % 2 == 1 { code { (part) } } @else { (part) }
        }
    }
}
