//! `/audit`: who changed subscriptions, keys and namespaces, and which calls were refused.

use actix_web::web::Data;
use actix_web::{HttpRequest, HttpResponse};
use serde::Serialize;

use super::query::{DEFAULT_PAGE, read_page, read_query};
use super::view::Timestamp;
use crate::domain::audit::AuditAction;
use crate::domain::history::Numbers;
use crate::domain::json::RawJson;
use crate::domain::limits;
use crate::domain::scope::Scope;
use crate::engine::Engine;
use crate::error::Error;
use crate::store::lists::audit_entries::{self, AuditFilter, AuditRow};

/// An entry of the audit log.
#[derive(Serialize)]
struct AuditView<'a> {
    id: i64,
    action: &'a str,
    actor: Option<&'a str>,
    address: Option<&'a str>,
    subject: Option<SubjectView<'a>>,
    detail: &'a RawJson,
    created_at: Timestamp,
}

#[derive(Serialize)]
struct SubjectView<'a> {
    kind: &'a str,
    id: Option<i64>,
}

impl<'a> AuditView<'a> {
    fn of(row: &'a AuditRow) -> Self {
        AuditView {
            id: row.id,
            action: &row.action,
            actor: row.actor.as_deref(),
            address: row.address.as_deref(),
            subject: row.subject_kind.as_deref().map(|kind| SubjectView { kind, id: row.subject_id }),
            detail: &row.detail.0,
            created_at: Timestamp(row.created_at),
        }
    }
}

#[derive(Serialize)]
struct AuditEntries<'a> {
    entries: Vec<AuditView<'a>>,
    next: Option<String>,
}

/// `GET /audit`: lists audit entries.
pub(crate) async fn list_audit_entries(
    engine: Data<Engine>,
    scope: Scope,
    request: HttpRequest,
) -> Result<HttpResponse, Error> {
    let actions = AuditAction::ALL.map(AuditAction::as_str).join(", ");
    let mut query = read_query(&request)?;
    let filter = AuditFilter {
        action: query.choice("action", AuditAction::parse, &actions),
        actor: query.text("actor", limits::NAME_CHARS),
        since: query.timestamp("since"),
        until: query.timestamp("until"),
    };
    let page = read_page(&mut query, DEFAULT_PAGE);
    query.finish()?;
    let (page, cursors) = page.by_id(&engine, scope.namespace, "audit", Numbers::LogIds, &filter).await?;
    let mut conn = engine.database().connection().await?;
    let (rows, end) = audit_entries::list_audit_entries(&mut conn, &scope, &filter, page).await?;
    drop(conn);
    let entries = rows.iter().map(AuditView::of).collect();
    Ok(HttpResponse::Ok().json(AuditEntries { entries, next: cursors.next(end).await? }))
}
