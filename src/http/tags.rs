//! `/tags`: the number and age of the waiting events of each tag, and the number of its workers.

use actix_web::web::Data;
use actix_web::{HttpRequest, HttpResponse};
use serde::Serialize;

use super::query::{DEFAULT_PAGE, read_page, read_query};
use super::view::{Timestamp, timestamp};
use crate::domain::scope::Scope;
use crate::engine::Engine;
use crate::error::Error;
use crate::store::lists::pages::page_end;
use crate::store::lists::tags::list_tags as load_page;

/// The waiting events of one tag are counted up to this number.
pub(crate) const COUNT_CAP: i64 = 1_000;

#[derive(Serialize)]
struct TagList {
    tags: Vec<TagView>,
    next: Option<String>,
}

#[derive(Serialize)]
struct TagView {
    tag: String,
    waiting: i64,
    waiting_is_exact: bool,
    oldest_waiting_since: Option<Timestamp>,
    oldest_age_seconds: Option<f64>,
    workers: i64,
    /// Whether events wait and no worker has requested them lately.
    unserved: bool,
}

/// `GET /tags`: lists tags.
pub(crate) async fn list_tags(engine: Data<Engine>, scope: Scope, request: HttpRequest) -> Result<HttpResponse, Error> {
    let mut query = read_query(&request)?;
    let page = read_page(&mut query, DEFAULT_PAGE);
    query.finish()?;
    let (page, cursors) = page.by_name(&engine, scope.namespace, "tags").await?;
    // The response includes sightings that this server has not stored yet.
    engine.record_sightings().await?;
    let mut conn = engine.database().connection().await?;
    let rows = load_page(&mut conn, &scope, &page, COUNT_CAP).await?;
    drop(conn);
    let next = cursors.next(page_end(&rows, page.limit, |row| row.tag.clone())).await?;
    let tags = rows
        .into_iter()
        .map(|row| TagView {
            waiting: row.waiting.min(COUNT_CAP),
            waiting_is_exact: row.waiting <= COUNT_CAP,
            oldest_waiting_since: timestamp(row.oldest_at),
            oldest_age_seconds: row.oldest_seconds,
            workers: row.workers,
            unserved: row.waiting > 0 && row.workers == 0,
            tag: row.tag,
        })
        .collect();
    Ok(HttpResponse::Ok().json(TagList { tags, next }))
}
