//! `/namespaces`: administrators create namespaces and change their settings.

use actix_web::http::header;
use actix_web::web::{Data, Path, Payload};
use actix_web::{FromRequest, HttpRequest, HttpResponse};
use serde::Serialize;
use serde_json::{Map, Value};

use super::body::{self, read_json_without_query};
use super::query::{DEFAULT_PAGE, expect_no_query, read_page, read_query};
use super::view::Timestamp;
use crate::domain::ids::NamespaceId;
use crate::domain::input::RawFields;
use crate::domain::json::RawJson;
use crate::domain::namespace::{NAME_CHARS, NamespaceSettings, check_name};
use crate::domain::scope::Scope;
use crate::engine::Engine;
use crate::engine::namespaces::not_found;
use crate::error::Error;
use crate::store::lists::pages::page_end;
use crate::store::tables::namespaces::{
    NamespaceRef, NamespaceRow, get_namespace as load, list_namespaces as load_page,
};

#[derive(Serialize)]
struct NamespaceView<'a> {
    id: NamespaceId,
    name: &'a str,
    settings: &'a RawJson,
    created_at: Timestamp,
}

impl<'a> NamespaceView<'a> {
    fn of(row: &'a NamespaceRow) -> Self {
        let NamespaceRow { id, name, settings, created_at } = row;
        NamespaceView { id: *id, name, settings: &settings.0, created_at: Timestamp(*created_at) }
    }
}

#[derive(Serialize)]
struct Namespaces<'a> {
    namespaces: Vec<NamespaceView<'a>>,
    next: Option<String>,
}

/// `POST /namespaces`: creates a namespace.
pub(crate) async fn create_namespace(
    engine: Data<Engine>,
    scope: Scope,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, Error> {
    let body = read_json_without_query(&request, payload, body::MAX_EVENT_BYTES).await?;
    let mut fields = RawFields::of_body(&body)?;
    let name = fields.required("name", |fields, field| fields.text(field, NAME_CHARS));
    if let Some(Err(reason)) = name.as_deref().map(check_name) {
        fields.refuse("name", reason);
    }
    let settings = fields.object("settings", NamespaceSettings::read).unwrap_or_default();
    let name = fields.finish_with(name)?;
    let settings = RawJson::of(&settings).map_err(|error| Error::Internal(error.to_string()))?;
    let row = engine.create_namespace(scope, name, settings).await?;
    let location = format!("/namespaces/{}", row.name);
    Ok(HttpResponse::Created().insert_header((header::LOCATION, location)).json(NamespaceView::of(&row)))
}

/// `GET /namespaces`: lists namespaces in the order of their names.
pub(crate) async fn list_namespaces(engine: Data<Engine>, request: HttpRequest) -> Result<HttpResponse, Error> {
    let mut query = read_query(&request)?;
    let page = read_page(&mut query, DEFAULT_PAGE);
    query.finish()?;
    let (page, cursors) = page.by_name(&engine, NamespaceId::DEFAULT, "namespaces").await?;
    let mut conn = engine.database().connection().await?;
    let rows = load_page(&mut conn, &page).await?;
    drop(conn);
    let next = cursors.next(page_end(&rows, page.limit, |row| row.name.clone())).await?;
    let namespaces = rows.iter().map(NamespaceView::of).collect();
    Ok(HttpResponse::Ok().json(Namespaces { namespaces, next }))
}

/// `GET /namespaces/{name}`: returns a namespace.
pub(crate) async fn get_namespace(engine: Data<Engine>, request: HttpRequest) -> Result<HttpResponse, Error> {
    expect_no_query(&request)?;
    let wanted = path_namespace(&request).await?;
    let mut conn = engine.database().connection().await?;
    let row = load(&mut conn, &wanted).await?.ok_or_else(|| not_found(&wanted))?;
    Ok(HttpResponse::Ok().json(NamespaceView::of(&row)))
}

/// `PATCH /namespaces/{name}`: changes the given settings of a namespace.
pub(crate) async fn update_namespace(
    engine: Data<Engine>,
    scope: Scope,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, Error> {
    let body = read_json_without_query(&request, payload, body::MAX_EVENT_BYTES).await?;
    let mut fields = RawFields::of_body(&body)?;
    let settings = fields.object("settings", NamespaceSettings::read).unwrap_or_default();
    fields.finish()?;
    let wanted = path_namespace(&request).await?;
    let settings: Map<String, Value> = match serde_json::to_value(settings) {
        Ok(Value::Object(settings)) => settings,
        _ => Map::new(),
    };
    let row = engine.update_namespace(scope, wanted, settings).await?;
    Ok(HttpResponse::Ok().json(NamespaceView::of(&row)))
}

/// Returns the namespace in the path: its name, or its id, which no name looks like.
pub(crate) async fn path_namespace(request: &HttpRequest) -> Result<NamespaceRef, Error> {
    let text = Path::<String>::extract(request).await.map(Path::into_inner).unwrap_or_default();
    if !text.bytes().all(|byte| byte.is_ascii_digit()) || text.is_empty() || text.starts_with('0') {
        check_name(&text).map_err(|reason| Error::invalid("name", reason))?;
        return Ok(NamespaceRef::Name(text));
    }
    // No namespace has a number that is too large for the column.
    let id = text.parse::<i32>().map_err(|_| Error::NamespaceNotFound(text.clone()))?;
    Ok(NamespaceRef::Id(NamespaceId(id)))
}
