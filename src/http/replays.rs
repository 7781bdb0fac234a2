//! `/dead-letters/replay` and `/replays`: replays many dead letters, and reports the progress.

use actix_web::http::header;
use actix_web::web::{Data, Payload};
use actix_web::{HttpRequest, HttpResponse};
use serde::Serialize;
use serde_json::json;

use super::body::{self, expect_no_input, path_id, read_json_without_query};
use super::dead_letters::CONFIGS;
use super::query::{DEFAULT_PAGE, expect_no_query, read_page, read_query};
use super::view::Timestamp;
use crate::domain::dead_letter::{REASONS, ReplayConfig, parse_reason};
use crate::domain::history::Numbers;
use crate::domain::input::RawFields;
use crate::domain::json::RawJson;
use crate::domain::limits;
use crate::domain::scope::Scope;
use crate::engine::Engine;
use crate::engine::operate::replay_jobs::BulkReplay;
use crate::error::Error;
use crate::store::lists::dead_letters::DeadLetterFilter;
use crate::store::lists::pages::page_end;
use crate::store::tables::replay_jobs::{ReplayJobRow, get_replay_job, list_replay_jobs};

#[derive(Serialize)]
struct ReplayView<'a> {
    id: i64,
    status: &'a str,
    filter: &'a RawJson,
    config: &'a str,
    rate_per_second: f64,
    by: Option<&'a str>,
    matched: i64,
    replayed: i64,
    skipped: i64,
    created_at: Timestamp,
    updated_at: Timestamp,
}

impl<'a> ReplayView<'a> {
    fn of(row: &'a ReplayJobRow) -> Self {
        ReplayView {
            id: row.id,
            status: &row.status,
            filter: &row.filter.0,
            config: &row.config,
            rate_per_second: row.rate_per_second,
            by: row.requested_by.as_deref(),
            matched: row.matched,
            replayed: row.replayed,
            skipped: row.skipped,
            created_at: Timestamp(row.created_at),
            updated_at: Timestamp(row.updated_at),
        }
    }
}

/// `POST /dead-letters/replay`: starts a replay of all dead letters that match the filter.
pub(crate) async fn start_replay(
    engine: Data<Engine>,
    scope: Scope,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, Error> {
    let body = read_json_without_query(&request, payload, body::MAX_EVENT_BYTES).await?;
    let (replay, by, dry_run) = read_replay(&body)?;
    if dry_run {
        let (matched, matched_is_exact) = engine.count_replayable(&scope, replay.filter).await?;
        return Ok(
            HttpResponse::Ok().json(json!({"matched": matched, "matched_is_exact": matched_is_exact, "dry_run": true}))
        );
    }
    let row = engine.start_replay(scope.with_actor(by), replay).await?;
    let location = (header::LOCATION, format!("/replays/{}", row.id));
    Ok(HttpResponse::Accepted().insert_header(location).json(ReplayView::of(&row)))
}

fn read_replay(body: &[u8]) -> Result<(BulkReplay, String, bool), Error> {
    let mut fields = RawFields::of_body(body)?;
    // Required: all dead letters are replayed only for an explicit `{}`.
    let filter = fields.required("filter", |fields, name| fields.object(name, |filter| Some(read_filter(filter))));
    let by = fields.required("by", |fields, name| fields.text(name, limits::NAME_CHARS));
    let config = fields.choice("config", ReplayConfig::parse, CONFIGS).unwrap_or_default();
    let rate_per_second =
        fields.number("rate_per_second", limits::REPLAYS_PER_SECOND).unwrap_or(limits::DEFAULT_REPLAYS_PER_SECOND);
    let dry_run = fields.boolean("dry_run").unwrap_or(false);
    let (filter, by) = fields.finish_with(filter.zip(by))?;
    Ok((BulkReplay { filter, config, rate_per_second }, by, dry_run))
}

fn read_filter(fields: &mut RawFields<'_>) -> DeadLetterFilter {
    DeadLetterFilter {
        event_id: fields.id("event_id"),
        subscription_id: fields.id("subscription_id"),
        reason: fields.choice("reason", parse_reason, &REASONS.join(", ")).map(str::to_owned),
        since: fields.timestamp("since"),
        until: None,
        replayed: None,
    }
}

#[derive(Serialize)]
struct Replays<'a> {
    replays: Vec<ReplayView<'a>>,
    next: Option<String>,
}

/// `GET /replays`: lists replays.
pub(crate) async fn list_replays(
    engine: Data<Engine>,
    scope: Scope,
    request: HttpRequest,
) -> Result<HttpResponse, Error> {
    let mut query = read_query(&request)?;
    let page = read_page(&mut query, DEFAULT_PAGE);
    query.finish()?;
    let (page, cursors) = page.by_id(&engine, "replays", Numbers::Ids, &()).await?;
    let mut conn = engine.database().connection().await?;
    let rows = list_replay_jobs(&mut conn, &scope, page.after.unwrap_or(0), page.limit).await?;
    drop(conn);
    let next = cursors.next(page_end(&rows, page.limit, |row| row.id)).await?;
    Ok(HttpResponse::Ok().json(Replays { replays: rows.iter().map(ReplayView::of).collect(), next }))
}

/// `GET /replays/{id}`: returns a replay with its progress.
pub(crate) async fn get_replay(
    engine: Data<Engine>,
    scope: Scope,
    request: HttpRequest,
) -> Result<HttpResponse, Error> {
    let id = path_id(&request).await?;
    expect_no_query(&request)?;
    let mut conn = engine.database().connection().await?;
    let row = get_replay_job(&mut conn, &scope, id).await?.ok_or(Error::ReplayNotFound(id))?;
    Ok(HttpResponse::Ok().json(ReplayView::of(&row)))
}

/// `POST /replays/{id}/cancel`: stops a replay.
pub(crate) async fn cancel_replay(
    engine: Data<Engine>,
    scope: Scope,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, Error> {
    let id = path_id(&request).await?;
    expect_no_input(&request, payload).await?;
    let row = engine.cancel_replay(scope, id).await?;
    Ok(HttpResponse::Ok().json(ReplayView::of(&row)))
}
