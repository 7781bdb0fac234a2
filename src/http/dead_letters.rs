//! `/dead-letters`: exhausted deliveries with snapshots from that time, and the replay of one.

use std::borrow::Cow;

use actix_web::web::{Data, Payload};
use actix_web::{HttpRequest, HttpResponse};
use serde::Serialize;
use serde_json::{Map, Value};

use super::body::{self, path_id, read_optional_json};
use super::doors::Admitted;
use super::query::{DEFAULT_PAGE, Query, expect_no_query, read_page, read_query};
use super::redaction::redaction_for;
use super::subscriptions::mask_url;
use super::view::Timestamp;
use crate::domain::api_key::Principal;
use crate::domain::dead_letter::{REASONS, ReplayConfig, parse_reason};
use crate::domain::history::Numbers;
use crate::domain::ids::{DeliveryId, EventId, SubscriptionId};
use crate::domain::input::RawFields;
use crate::domain::json::RawJson;
use crate::domain::limits;
use crate::domain::redaction::Redaction;
use crate::domain::scope::Scope;
use crate::domain::subscription::headers;
use crate::engine::Engine;
use crate::engine::operate::replays::ReplayOrder;
use crate::error::Error;
use crate::store::lists::dead_letters::{self, DeadLetterFilter, DeadLetterRow, WholeDeadLetter};

/// The values of `config` in a request, for error texts.
pub(crate) const CONFIGS: &str = "current, original";

#[derive(Serialize)]
pub(crate) struct DeadLetterView<'a> {
    pub(crate) id: i64,
    pub(crate) delivery_id: DeliveryId,
    pub(crate) event_id: EventId,
    pub(crate) subscription_id: SubscriptionId,
    pub(crate) subscription_version: i32,
    pub(crate) reason: &'a str,
    pub(crate) detail: Option<&'a str>,
    pub(crate) actor: Option<&'a str>,
    /// The fields that the caller may not see. Omitted if there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) hidden: Option<&'static [&'static str]>,
    pub(crate) created_at: Timestamp,
    pub(crate) replay: Option<ReplayView<'a>>,
    /// Omitted in lists.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub(crate) snapshots: Option<Snapshots<'a>>,
}

/// How a dead letter was replayed.
#[derive(Serialize)]
pub(crate) struct ReplayView<'a> {
    pub(crate) replayed_at: Timestamp,
    pub(crate) actor: Option<&'a str>,
    pub(crate) config: Option<&'a str>,
    pub(crate) reason: Option<&'a str>,
}

/// The event, the subscription and the attempts at the time when the delivery became a dead letter.
#[derive(Serialize)]
pub(crate) struct Snapshots<'a> {
    pub(crate) event: Cow<'a, RawJson>,
    pub(crate) subscription: Map<String, Value>,
    pub(crate) attempts: Cow<'a, RawJson>,
}

impl<'a> DeadLetterView<'a> {
    pub(crate) fn of(row: &'a DeadLetterRow) -> Self {
        DeadLetterView {
            id: row.id,
            delivery_id: row.delivery_id,
            event_id: row.event_id,
            subscription_id: row.subscription_id,
            subscription_version: row.subscription_version,
            reason: &row.reason,
            detail: row.detail.as_deref(),
            actor: row.actor.as_deref(),
            hidden: None,
            created_at: Timestamp(row.created_at),
            replay: row.replayed_at.map(|replayed_at| ReplayView {
                replayed_at: Timestamp(replayed_at),
                actor: row.replay_actor.as_deref(),
                config: row.replay_config.as_deref(),
                reason: row.replay_reason.as_deref(),
            }),
            snapshots: None,
        }
    }

    pub(crate) fn whole(whole: &'a WholeDeadLetter, redaction: &Redaction) -> Self {
        let mut view = Self::of(&whole.dead_letter);
        view.snapshots = Some(Snapshots {
            event: redaction.redact_event(&whole.event.0).map_or(Cow::Borrowed(&whole.event.0), Cow::Owned),
            subscription: without_header_values(&whole.subscription.0),
            attempts: Cow::Borrowed(&whole.attempts.0),
        });
        view
    }
}

impl DeadLetterView<'_> {
    /// Hides what only callers with the scope `reveal` may see, unless this one has it.
    ///
    /// Of the URL of the subscription, only those see more than its beginning who may change it.
    pub(crate) fn for_reader(mut self, reader: &Principal) -> Self {
        if let Some(snapshots) = &mut self.snapshots {
            mask_url(&mut snapshots.subscription, reader);
        }
        if reader.may_reveal() {
            return self;
        }
        self.detail = None;
        self.hidden = Some(&["detail"]);
        if let Some(snapshots) = &mut self.snapshots {
            snapshots.event = Cow::Owned(with_nulls(&snapshots.event, &["payload"]));
            snapshots.attempts = Cow::Owned(with_nulls(&snapshots.attempts, &["error_message", "response_excerpt"]));
            self.hidden = Some(&["detail", "event.payload", "attempts.error_message", "attempts.response_excerpt"]);
        }
        self
    }
}

/// Returns an object, or a list of objects, with `null` in these fields.
fn with_nulls(json: &RawJson, fields: &[&str]) -> RawJson {
    let mut value: Value = serde_json::from_str(json.as_str()).unwrap_or_default();
    let objects = match &mut value {
        Value::Array(items) => items.iter_mut().collect(),
        object => vec![object],
    };
    for object in objects.into_iter().filter_map(Value::as_object_mut) {
        for field in fields {
            if let Some(value) = object.get_mut(*field) {
                *value = Value::Null;
            }
        }
    }
    RawJson::from_column(value.to_string())
}

/// Returns the snapshot of a subscription with the names of its headers only. It contains no secret.
fn without_header_values(subscription: &RawJson) -> Map<String, Value> {
    let mut fields: Map<String, Value> = serde_json::from_str(subscription.as_str()).unwrap_or_default();
    headers::hide_values(&mut fields);
    fields
}

#[derive(Serialize)]
struct DeadLetters<'a> {
    dead_letters: Vec<DeadLetterView<'a>>,
    next: Option<String>,
}

/// Reads the filter of the list.
pub(crate) fn read_filter(query: &mut Query) -> DeadLetterFilter {
    DeadLetterFilter {
        event_id: query.id("event_id"),
        subscription_id: query.id("subscription_id"),
        reason: query.choice("reason", parse_reason, &REASONS.join(", ")).map(str::to_owned),
        since: query.timestamp("since"),
        until: query.timestamp("until"),
        replayed: query.boolean("replayed"),
    }
}

/// `GET /dead-letters`: lists dead letters without their snapshots.
pub(crate) async fn list_dead_letters(
    engine: Data<Engine>,
    admitted: Admitted,
    scope: Scope,
    request: HttpRequest,
) -> Result<HttpResponse, Error> {
    let mut query = read_query(&request)?;
    let filter = read_filter(&mut query);
    let page = read_page(&mut query, DEFAULT_PAGE);
    query.finish()?;
    let (page, cursors) = page.by_id(&engine, scope.namespace, "dead-letters", Numbers::Ids, &filter).await?;
    let mut conn = engine.database().connection().await?;
    let (rows, end) = dead_letters::list_dead_letters(&mut conn, &scope, &filter, page).await?;
    drop(conn);
    let dead_letters = rows.iter().map(|row| DeadLetterView::of(row).for_reader(admitted.principal())).collect();
    Ok(HttpResponse::Ok().json(DeadLetters { dead_letters, next: cursors.next(end).await? }))
}

/// `GET /dead-letters/{id}`: returns a dead letter with its snapshots.
pub(crate) async fn get_dead_letter(
    engine: Data<Engine>,
    admitted: Admitted,
    scope: Scope,
    request: HttpRequest,
) -> Result<HttpResponse, Error> {
    let id = path_id(&request).await?;
    expect_no_query(&request)?;
    let redaction = redaction_for(&engine, &scope, admitted.principal()).await?;
    let mut conn = engine.database().connection().await?;
    let dead_letter = dead_letters::get_dead_letter(&mut conn, &scope, id).await?;
    let dead_letter = dead_letter.ok_or(Error::DeadLetterNotFound(id))?;
    Ok(HttpResponse::Ok().json(DeadLetterView::whole(&dead_letter, &redaction).for_reader(admitted.principal())))
}

/// `POST /dead-letters/{id}/replay`: sends a dead letter again.
pub(crate) async fn replay_dead_letter(
    engine: Data<Engine>,
    admitted: Admitted,
    scope: Scope,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, Error> {
    let id = path_id(&request).await?;
    let body = read_optional_json(&request, payload, body::MAX_EVENT_BYTES).await?;
    let mut fields = RawFields::of_optional_body(&body)?;
    let reason = fields.text("reason", limits::NAME_CHARS);
    let config = fields.choice("config", ReplayConfig::parse, CONFIGS).unwrap_or_default();
    let payload = fields.json("payload", limits::PAYLOAD_BYTES);
    let new_webhook_id = fields.boolean("new_webhook_id").unwrap_or(false);
    fields.finish()?;
    let order = ReplayOrder { reason, config, payload, new_webhook_id };
    let redaction = redaction_for(&engine, &scope, admitted.principal()).await?;
    let dead_letter = engine.replay_dead_letter(scope, id, order).await?;
    Ok(HttpResponse::Ok().json(DeadLetterView::whole(&dead_letter, &redaction).for_reader(admitted.principal())))
}
