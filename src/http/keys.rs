//! `/keys`: makes, lists, changes, revokes and rotates API keys.

use actix_web::web::{Data, Payload};
use actix_web::{HttpRequest, HttpResponse};
use chrono::{DateTime, Utc};
use serde::Serialize;

use super::body::{self, expect_no_input, path_id, read_json_without_query, read_optional_json};
use super::doors::{Admitted, key_hash_of};
use super::query::{DEFAULT_PAGE, read_page, read_query};
use super::view::{Timestamp, timestamp};
use crate::domain::api_key::{ApiKey, KeyScope, KeyScopes, TagPatterns, check_name};
use crate::domain::history::Numbers;
use crate::domain::input::RawFields;
use crate::domain::limits;
use crate::domain::publish_limits::{PublishRate, RateChange};
use crate::domain::scope::Scope;
use crate::domain::seconds::Seconds;
use crate::engine::Engine;
use crate::error::Error;
use crate::store::lists::pages::page_end;
use crate::store::tables::api_keys::{ListedKey, NewKey, list_keys as load_page};

/// A key in a response.
#[derive(Serialize)]
struct KeyView<'a> {
    id: i64,
    name: &'a str,
    namespace: &'a str,
    prefix: &'a str,
    scopes: &'a [String],
    tag_patterns: Option<&'a [String]>,
    /// The number of secrets that are good.
    secrets: i64,
    /// The number of browsers in which somebody has logged in with it.
    sessions: i64,
    expires_at: Option<Timestamp>,
    revoked_at: Option<Timestamp>,
    last_used_at: Option<Timestamp>,
    created_at: Timestamp,
    created_by: Option<&'a str>,
    publishes_per_second: Option<i32>,
    publish_burst: Option<i32>,
    /// The key itself, only in the response that has made it.
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'a str>,
}

impl<'a> KeyView<'a> {
    fn of(row: &'a ListedKey) -> Self {
        KeyView {
            id: row.id.0,
            name: &row.name,
            namespace: &row.namespace,
            prefix: &row.prefix,
            scopes: &row.scopes,
            tag_patterns: row.tag_patterns.as_deref(),
            secrets: row.secrets,
            sessions: row.sessions,
            expires_at: timestamp(row.expires_at),
            revoked_at: timestamp(row.revoked_at),
            last_used_at: timestamp(row.last_used_at),
            created_at: Timestamp(row.created_at),
            created_by: row.created_by.as_deref(),
            publishes_per_second: row.publishes_per_second,
            publish_burst: row.publish_burst,
            key: None,
        }
    }

    fn with_key(row: &'a ListedKey, key: &'a ApiKey) -> Self {
        KeyView { key: Some(key.as_text()), ..Self::of(row) }
    }
}

#[derive(Serialize)]
struct Keys<'a> {
    keys: Vec<KeyView<'a>>,
    next: Option<String>,
}

/// `POST /keys`: makes a key. The response has the key itself, which is shown this once.
pub(crate) async fn create_key(
    engine: Data<Engine>,
    admitted: Admitted,
    scope: Scope,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, Error> {
    let body = read_json_without_query(&request, payload, body::MAX_EVENT_BYTES).await?;
    let mut new = read_key(&body, engine.time())?;
    if let Some(missing) = admitted.principal().scopes.first_missing(new.scopes) {
        return Err(Error::ScopeMissing(missing));
    }
    if !engine.keys().is_required() && !new.scopes.allow(KeyScope::Admin) {
        return Err(Error::invalid(
            "scopes",
            "must have admin in the first key: only that can make others from now on",
        ));
    }
    new.created_by = scope.actor.as_deref().map(str::to_owned);
    let (row, key) = engine.create_key(scope, key_hash_of(&request), new).await?;
    Ok(HttpResponse::Created().json(KeyView::with_key(&row, &key)))
}

fn read_key(body: &[u8], now: DateTime<Utc>) -> Result<NewKey, Error> {
    let mut fields = RawFields::of_body(body)?;
    let name = fields
        .required("name", |fields, name| fields.parse_text(name, |text| check_name(text).map(|()| text.to_owned())));
    let scopes = fields.required("scopes", read_scopes);
    let tag_patterns = read_patterns(&mut fields);
    let expires_at = fields.timestamp("expires_at");
    if expires_at.is_some_and(|at| at <= now) {
        fields.refuse("expires_at", "must be in the future");
    }
    if tag_patterns.is_some() && scopes.is_some_and(|scopes| scopes.allow(KeyScope::Admin)) {
        fields.refuse("tag_patterns", "must not be given with the scope admin, which no pattern limits");
    }
    let (publishes_per_second, publish_burst) = PublishRate::read(&mut fields);
    let both = name.zip(scopes);
    let (name, scopes) = fields.finish_with(both)?;
    Ok(NewKey { name, scopes, tag_patterns, expires_at, created_by: None, publishes_per_second, publish_burst })
}

fn read_scopes(fields: &mut RawFields<'_>, name: &str) -> Option<KeyScopes> {
    let names: Vec<String> = fields.value(name, "a list of strings")?;
    let scopes: Option<Vec<KeyScope>> = names.iter().map(|name| KeyScope::parse(name)).collect();
    let known = KeyScope::ALL.map(KeyScope::as_str).join(", ");
    match scopes {
        Some(scopes) if !scopes.is_empty() => Some(KeyScopes::of(scopes)),
        _ => {
            fields.refuse(name, format!("must be one or more of {known}"));
            None
        }
    }
}

fn read_patterns(fields: &mut RawFields<'_>) -> Option<TagPatterns> {
    let patterns: Vec<String> = fields.value("tag_patterns", "a list of strings")?;
    match TagPatterns::parse(patterns.iter().map(String::as_str)) {
        Ok(patterns) => Some(patterns),
        Err(reason) => {
            fields.refuse("tag_patterns", reason);
            None
        }
    }
}

/// `GET /keys`: lists keys, revoked ones too, without the keys themselves.
pub(crate) async fn list_keys(engine: Data<Engine>, scope: Scope, request: HttpRequest) -> Result<HttpResponse, Error> {
    let mut query = read_query(&request)?;
    let page = read_page(&mut query, DEFAULT_PAGE);
    query.finish()?;
    let (page, cursors) = page.by_id(&engine, scope.namespace, "keys", Numbers::Ids, &()).await?;
    // The response includes uses that this server has not stored yet.
    engine.record_key_use().await?;
    let mut conn = engine.database().connection().await?;
    let rows = load_page(&mut conn, &scope, page).await?;
    drop(conn);
    let next = cursors.next(page_end(&rows, page.limit, |row| row.id.0)).await?;
    Ok(HttpResponse::Ok().json(Keys { keys: rows.iter().map(KeyView::of).collect(), next }))
}

/// `PATCH /keys/{id}`: changes how much may be published with a key.
pub(crate) async fn update_key(
    engine: Data<Engine>,
    scope: Scope,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, Error> {
    let body = read_json_without_query(&request, payload, body::MAX_EVENT_BYTES).await?;
    let mut fields = RawFields::of_body(&body)?;
    let change = RateChange::read(&mut fields);
    fields.finish()?;
    let id = path_id(&request).await?;
    let row = engine.update_key(scope, key_hash_of(&request), id, change).await?;
    Ok(HttpResponse::Ok().json(KeyView::of(&row)))
}

/// `POST /keys/{id}/revoke`: ends a key at once, on all servers.
pub(crate) async fn revoke_key(
    engine: Data<Engine>,
    scope: Scope,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, Error> {
    let id = path_id(&request).await?;
    expect_no_input(&request, payload).await?;
    let row = engine.revoke_key(scope, key_hash_of(&request), id).await?;
    Ok(HttpResponse::Ok().json(KeyView::of(&row)))
}

/// `POST /keys/{id}/rotate`: gives a key a new secret, and lets the old one end after an overlap.
pub(crate) async fn rotate_key(
    engine: Data<Engine>,
    scope: Scope,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, Error> {
    let id = path_id(&request).await?;
    let body = read_optional_json(&request, payload, body::MAX_EVENT_BYTES).await?;
    let mut fields = RawFields::of_optional_body(&body)?;
    let overlap = fields.seconds("overlap_seconds", Seconds::whole(limits::KEY_OVERLAP_SECONDS));
    fields.finish()?;
    let overlap = overlap.unwrap_or(Seconds::whole(limits::DEFAULT_KEY_OVERLAP_SECONDS));
    let (row, key) = engine.rotate_key(scope, key_hash_of(&request), id, overlap.as_f64()).await?;
    Ok(HttpResponse::Ok().json(KeyView::with_key(&row, &key)))
}
