//! `/health` and `/ready`: probes for load balancers and supervisors.

use std::time::Duration;

use actix_web::web::Data;
use actix_web::{HttpRequest, HttpResponse};
use serde_json::json;
use tokio::time::Instant;

use super::probe_turns::ProbeTurns;
use super::query::expect_no_query;
use crate::engine::Engine;
use crate::error::{Error, OutageKind};
use crate::store::connection::connect::is_read_only;
use crate::store::connection::migrate::pending;

/// The time that `/ready` waits for its turn and for a connection. Short, because a probe must not hang.
const READY_TIMEOUT: Duration = Duration::from_secs(2);

/// `GET /health`: reports that the process is alive. Does not use the database.
pub(crate) async fn get_health(request: HttpRequest) -> Result<HttpResponse, Error> {
    expect_no_query(&request)?;
    Ok(HttpResponse::Ok().json(json!({ "status": "ok", "version": env!("CARGO_PKG_VERSION") })))
}

/// `GET /ready`: reports that the database responds, has the schema of this version, and accepts
/// writes as far as is known.
pub(crate) async fn get_readiness(
    engine: Data<Engine>,
    turns: Data<ProbeTurns>,
    request: HttpRequest,
) -> Result<HttpResponse, Error> {
    expect_no_query(&request)?;
    let deadline = Instant::now() + READY_TIMEOUT;
    let turn = turns.readiness.take_by(deadline).await?;
    let mut conn = engine.database().connection_by(deadline).await?;
    let pending = pending(&mut conn).await?;
    if pending > 0 {
        return Err(Error::outage(OutageKind::NotMigrated, format!("{pending} migrations have not run")));
    }
    let is_read_only = is_read_only(&mut conn).await?;
    drop(conn);
    drop(turn);
    if is_read_only {
        let error = Error::outage(OutageKind::ReadOnly, "the database is read-only");
        engine.database().note_failure(&error);
        return Err(error);
    }
    match engine.database().recent_outage() {
        Some(outage) => Err(Error::Unavailable(outage)),
        None => Ok(HttpResponse::Ok().json(json!({ "status": "ready" }))),
    }
}
