//! `/event-types`: what teams declare about the events that they publish.

use actix_web::http::header;
use actix_web::web::{Data, Path, Payload};
use actix_web::{FromRequest, HttpRequest, HttpResponse};
use serde::Serialize;
use serde_json::json;

use super::body::{expect_no_input, read_json};
use super::doors::Admitted;
use super::if_match::{etag, read_if_match};
use super::problem::recent_events_view;
use super::query::{DEFAULT_PAGE, read_page, read_query};
use super::redaction::redaction_for;
use super::view::{Timestamp, timestamp};
use crate::domain::event_type::check_name;
use crate::domain::event_type::declaration::Declaration;
use crate::domain::input::RawFields;
use crate::domain::json::RawJson;
use crate::domain::scope::Scope;
use crate::domain::{limits, text};
use crate::engine::Engine;
use crate::engine::operate::event_types::{EventTypePut, PutEventType};
use crate::error::Error;
use crate::store::lists::event_types::{ListedEventType, list_event_types as load_page};
use crate::store::lists::pages::page_end;
use crate::store::tables::event_types::{EventTypeRow, get_event_type as load, get_event_type_version, kept_versions};

/// The maximum size of a body with an event type: the largest schema and examples, and a description with every character
/// escaped.
const MAX_EVENT_TYPE_BYTES: usize = 256 * 1024;

/// The recent events of one type are counted up to this number.
pub(crate) const COUNT_CAP: i64 = 1_000;

#[derive(Serialize)]
struct EventTypeView<'a> {
    name: &'a str,
    id: i64,
    description: Option<&'a str>,
    schema: Option<&'a RawJson>,
    examples: &'a RawJson,
    version: i32,
    /// The versions of the schema that are kept, the latest first.
    versions: Vec<i32>,
    revision: i32,
    created_at: Timestamp,
    updated_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    recent_events: Option<serde_json::Value>,
}

impl<'a> EventTypeView<'a> {
    fn of(row: &'a EventTypeRow, versions: Vec<i32>) -> Self {
        EventTypeView {
            name: &row.name,
            id: row.id,
            description: row.description.as_deref(),
            schema: row.schema.as_ref().map(|schema| &schema.0),
            examples: &row.examples.0,
            version: row.version,
            versions,
            revision: row.revision,
            created_at: Timestamp(row.created_at),
            updated_at: Timestamp(row.updated_at),
            recent_events: None,
        }
    }
}

#[derive(Serialize)]
struct ListedView<'a> {
    name: &'a str,
    declared: bool,
    description: Option<&'a str>,
    version: Option<i32>,
    has_schema: bool,
    created_at: Option<Timestamp>,
    updated_at: Option<Timestamp>,
    events_last_day: i64,
    events_last_day_is_exact: bool,
    last_event_at: Option<Timestamp>,
}

impl<'a> ListedView<'a> {
    fn of(row: &'a ListedEventType) -> Self {
        ListedView {
            name: &row.name,
            declared: row.version.is_some(),
            description: row.description.as_deref(),
            version: row.version,
            has_schema: row.has_schema,
            created_at: timestamp(row.created_at),
            updated_at: timestamp(row.updated_at),
            events_last_day: row.events.min(COUNT_CAP),
            events_last_day_is_exact: row.events <= COUNT_CAP,
            last_event_at: timestamp(row.last_event_at),
        }
    }
}

/// `GET /event-types`: lists the types that are declared, and those that events have.
pub(crate) async fn list_event_types(
    engine: Data<Engine>,
    scope: Scope,
    request: HttpRequest,
) -> Result<HttpResponse, Error> {
    let mut query = read_query(&request)?;
    let page = read_page(&mut query, DEFAULT_PAGE);
    query.finish()?;
    let (page, cursors) = page.by_name(&engine, scope.namespace, "event_types").await?;
    let mut conn = engine.database().connection().await?;
    let rows = load_page(&mut conn, &scope, &page, COUNT_CAP).await?;
    drop(conn);
    let next = cursors.next(page_end(&rows, page.limit, |row| row.name.clone())).await?;
    let views: Vec<ListedView<'_>> = rows.iter().map(ListedView::of).collect();
    Ok(HttpResponse::Ok().json(json!({"event_types": views, "next": next})))
}

/// `GET /event-types/{name}`: returns an event type, with its present schema or an older one.
pub(crate) async fn get_event_type(
    engine: Data<Engine>,
    scope: Scope,
    request: HttpRequest,
) -> Result<HttpResponse, Error> {
    let mut query = read_query(&request)?;
    let version = query.integer("version", 1..=i32::MAX);
    query.finish()?;
    let name = path_name(&request).await?;
    let mut conn = engine.database().connection().await?;
    let row = load(&mut conn, &scope, &name).await?.ok_or_else(|| Error::EventTypeNotFound(name.clone()))?;
    let versions = kept_versions(&mut conn, &scope, &name).await?;
    let older = match version.filter(|version| *version != row.version) {
        None => None,
        Some(version) => {
            let schema = get_event_type_version(&mut conn, &scope, &name, version).await?;
            Some((version, schema.ok_or(Error::EventTypeVersionNotFound { name, version })?))
        }
    };
    drop(conn);
    let mut view = EventTypeView::of(&row, versions);
    if let Some((version, schema)) = &older {
        (view.version, view.schema) = (*version, schema.as_ref().map(|schema| &schema.0));
    }
    Ok(HttpResponse::Ok().insert_header(etag(row.revision)).json(view))
}

/// `PUT /event-types/{name}`: declares an event type, or changes what is declared.
pub(crate) async fn put_event_type(
    engine: Data<Engine>,
    admitted: Admitted,
    scope: Scope,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, Error> {
    let mut query = read_query(&request)?;
    let force = query.boolean("force").unwrap_or(false);
    query.finish()?;
    let expected = read_if_match(&request)?;
    let body = read_json(&request, payload, MAX_EVENT_TYPE_BYTES).await?;
    let mut fields = RawFields::of_body(&body)?;
    let declaration = Declaration::read(&mut fields);
    fields.finish()?;
    let name = path_name(&request).await?;
    check_name(&name).map_err(|reason| Error::invalid("name", reason))?;
    drop(body);
    let redaction = redaction_for(&engine, &scope, admitted.principal()).await?;
    let put = EventTypePut { name, declaration, expected, force, redaction };
    let PutEventType { row, is_new, recent } = engine.put_event_type(scope.clone(), put).await?;
    // The change is committed: a failure to read the rest must not deny it.
    let versions = async {
        let mut conn = engine.database().connection().await?;
        Ok(kept_versions(&mut conn, &scope, &row.name).await?)
    };
    let mut view = EventTypeView::of(&row, versions.await.map_err(Error::after_a_part)?);
    view.recent_events = Some(recent_events_view(&recent));
    let mut response = if is_new { HttpResponse::Created() } else { HttpResponse::Ok() };
    if is_new {
        // The path as the client has sent it, since a name may have to be encoded.
        response.insert_header((header::LOCATION, request.path()));
    }
    Ok(response.insert_header(etag(row.revision)).json(view))
}

/// `DELETE /event-types/{name}`: removes an event type. Its events stay.
pub(crate) async fn delete_event_type(
    engine: Data<Engine>,
    scope: Scope,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, Error> {
    let expected = read_if_match(&request)?;
    expect_no_input(&request, payload).await?;
    let name = path_name(&request).await?;
    engine.delete_event_type(scope, name, expected).await?;
    Ok(HttpResponse::NoContent().finish())
}

/// Returns the name in the path.
pub(crate) async fn path_name(request: &HttpRequest) -> Result<String, Error> {
    let name = Path::<String>::extract(request).await.map(Path::into_inner).unwrap_or_default();
    let checked = text::check(&name, limits::NAME_CHARS);
    checked.map(|()| name).map_err(|reason| Error::invalid("name", reason))
}
