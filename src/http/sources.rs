//! `/sources`: where webhooks of other systems come in, and their settings.

use actix_web::http::header;
use actix_web::web::{Data, Payload};
use actix_web::{HttpRequest, HttpResponse};
use serde_json::{Map, Value, json};

use super::body::{expect_no_input, path_id, read_json_without_query};
use super::doors::Admitted;
use super::if_match::{etag, read_if_match};
use super::query::{DEFAULT_PAGE, expect_no_query, read_page, read_query};
use super::view::{Timestamp, timestamp};
use crate::domain::api_key::KeyScope;
use crate::domain::history::Numbers;
use crate::domain::input::{InputError, RawFields};
use crate::domain::limits;
use crate::domain::scope::Scope;
use crate::domain::seconds::Seconds;
use crate::domain::source::SourceSpec;
use crate::engine::Engine;
use crate::engine::operate::sources::{SourceChanges, SourceSecretRotation};
use crate::error::Error;
use crate::store::lists::pages::page_end;
use crate::store::tables::sources::{self, SourceFilter, SourceRow};

/// The maximum size of a body with a source: all fields at their limits, with every character escaped in 12 bytes.
const MAX_SOURCE_BYTES: usize = 512 * 1024;

/// `POST /sources`: creates a source, and returns its URL. Its tags must be allowed to the key.
pub(crate) async fn create_source(
    engine: Data<Engine>,
    admitted: Admitted,
    scope: Scope,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, Error> {
    let body = read_json_without_query(&request, payload, MAX_SOURCE_BYTES).await?;
    let mut fields = RawFields::of_body(&body)?;
    let is_active = fields.boolean("is_active").unwrap_or(true);
    let spec = SourceSpec::parse_new(fields.rest());
    // The response lists all errors at once, including those of the spec.
    let spec = spec.map_err(|errors| fields.refuse_all(InputError::Invalid(errors))).ok();
    let (spec, secret) = fields.finish_with(spec)?;
    admitted.principal().check_publish(spec.tags.as_slice())?;
    let row = engine.create_source(scope.clone(), spec, secret, is_active).await?;
    let view = view(&engine, &admitted, &scope, &row);
    let location = (header::LOCATION, format!("/sources/{}", row.id));
    Ok(HttpResponse::Created().insert_header(location).insert_header(etag(row.version)).json(view))
}

/// `GET /sources`: lists sources.
pub(crate) async fn list_sources(
    engine: Data<Engine>,
    admitted: Admitted,
    scope: Scope,
    request: HttpRequest,
) -> Result<HttpResponse, Error> {
    let mut query = read_query(&request)?;
    let filter = SourceFilter { is_active: query.boolean("is_active") };
    let page = read_page(&mut query, DEFAULT_PAGE);
    query.finish()?;
    let (page, cursors) = page.by_id(&engine, scope.namespace, "sources", Numbers::Ids, &filter).await?;
    // The response includes refused webhooks that this server has not stored yet.
    engine.record_refused_webhooks().await?;
    let mut conn = engine.database().connection().await?;
    let rows = sources::list_sources(&mut conn, &scope, &filter, page).await?;
    drop(conn);
    let views: Vec<_> = rows.iter().map(|row| view(&engine, &admitted, &scope, row)).collect();
    let next = cursors.next(page_end(&rows, page.limit, |row| row.id.0)).await?;
    Ok(HttpResponse::Ok().json(json!({"sources": views, "next": next})))
}

/// `GET /sources/{id}`: returns a source.
pub(crate) async fn get_source(
    engine: Data<Engine>,
    admitted: Admitted,
    scope: Scope,
    request: HttpRequest,
) -> Result<HttpResponse, Error> {
    let id = path_id(&request).await?;
    expect_no_query(&request)?;
    engine.record_refused_webhooks().await?;
    let mut conn = engine.database().connection().await?;
    let row = sources::get_source(&mut conn, &scope, id).await?.ok_or(Error::SourceNotFound(id))?;
    drop(conn);
    Ok(respond(&engine, &admitted, &scope, &row))
}

/// `PATCH /sources/{id}`: changes the given fields of a source. New tags must be allowed to the key.
pub(crate) async fn update_source(
    engine: Data<Engine>,
    admitted: Admitted,
    scope: Scope,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, Error> {
    let id = path_id(&request).await?;
    let expected = read_if_match(&request)?;
    let body = read_json_without_query(&request, payload, MAX_SOURCE_BYTES).await?;
    let mut fields = RawFields::of_body(&body)?;
    let is_active = fields.boolean("is_active");
    let changes = SourceChanges { fields: fields.rest(), is_active };
    fields.finish()?;
    if let Some(tags) = SourceSpec::changed_tags(&changes.fields) {
        admitted.principal().check_publish(tags.as_slice())?;
    }
    let row = engine.update_source(scope.clone(), id, expected, changes).await?;
    Ok(respond(&engine, &admitted, &scope, &row))
}

/// `DELETE /sources/{id}`: deletes a source.
pub(crate) async fn delete_source(
    engine: Data<Engine>,
    scope: Scope,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, Error> {
    let id = path_id(&request).await?;
    let expected = read_if_match(&request)?;
    expect_no_input(&request, payload).await?;
    engine.delete_source(scope, id, expected).await?;
    Ok(HttpResponse::NoContent().finish())
}

/// `POST /sources/{id}/rotate-secret`: sets a new secret. The old one is accepted for a while.
pub(crate) async fn rotate_source_secret(
    engine: Data<Engine>,
    scope: Scope,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, Error> {
    let id = path_id(&request).await?;
    let expected = read_if_match(&request)?;
    let body = read_json_without_query(&request, payload, MAX_SOURCE_BYTES).await?;
    let mut fields = RawFields::of_body(&body)?;
    let secret = fields.required("secret", |fields, name| fields.text(name, limits::SOURCE_SECRET_CHARS));
    let overlap = fields
        .seconds("overlap_seconds", Seconds::whole(limits::SECRET_OVERLAP_SECONDS))
        .unwrap_or(Seconds::whole(limits::DEFAULT_SECRET_OVERLAP_SECONDS));
    let secret = fields.finish_with(secret)?;
    let rotation = SourceSecretRotation { secret, overlap_seconds: overlap.as_f64() };
    let row = engine.rotate_source_secret(scope, id, expected, rotation).await?;
    Ok(HttpResponse::Ok().insert_header(etag(row.version)).json(json!({
        "source_id": row.id, "version": row.version, "overlap_seconds": overlap,
    })))
}

fn respond(engine: &Engine, admitted: &Admitted, scope: &Scope, row: &SourceRow) -> HttpResponse {
    HttpResponse::Ok().insert_header(etag(row.version)).json(view(engine, admitted, scope, row))
}

/// Returns the view of a source: its settings and its counts, without its secrets. Its URL is shown to those who may
/// change it.
fn view(engine: &Engine, admitted: &Admitted, scope: &Scope, row: &SourceRow) -> Map<String, Value> {
    let may_see_url = admitted.principal().scopes.allow(KeyScope::Operate);
    let token = may_see_url.then(|| engine.token_of(scope.namespace, row)).flatten();
    let mut view = Map::new();
    view.insert("id".into(), row.id.into());
    view.insert("version".into(), row.version.into());
    view.insert("is_active".into(), row.is_active.into());
    view.insert("path".into(), json!(token.map(|token| format!("/in/{token}"))));
    let spec: Map<String, Value> = serde_json::from_str(row.spec.0.as_str()).unwrap_or_default();
    view.extend(spec);
    let refused = json!({
        "webhooks": row.refused, "last_at": timestamp(row.last_refused_at), "last_reason": row.last_refusal,
    });
    view.insert("refused".into(), refused);
    view.insert("created_at".into(), json!(Timestamp(row.created_at)));
    view.insert("updated_at".into(), json!(Timestamp(row.updated_at)));
    view
}
