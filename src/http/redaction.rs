//! What is redacted for a caller who reads.
//!
//! It is read from the database whenever contents are shown, and not kept in memory: what an administrator has hidden is
//! hidden on all servers from then on. Contents are shown one event at a time, so that is one look-up by a primary key.

use std::time::Duration;

use crate::domain::api_key::Principal;
use crate::domain::redaction::Redaction;
use crate::domain::scope::Scope;
use crate::engine::Engine;
use crate::error::{Error, OutageKind};
use crate::store::tables::namespaces::load_redaction;

/// The time within which it is read. A request that changes something must have enough left for that.
const READ_WITHIN: Duration = Duration::from_secs(1);

/// Returns what is redacted for a caller: everything, without a query, for one who may see no contents. A request that
/// changes something calls it before it does.
pub(crate) async fn redaction_for(engine: &Engine, scope: &Scope, reader: &Principal) -> Result<Redaction, Error> {
    if !reader.may_reveal() {
        return Ok(Redaction::everything());
    }
    let reading = async {
        let mut conn = engine.database().connection().await?;
        Ok(load_redaction(&mut conn, scope.namespace).await?)
    };
    let too_slow = || Error::outage(OutageKind::TooSlow, "what is redacted could not be read in time");
    tokio::time::timeout(READ_WITHIN, reading).await.unwrap_or_else(|_| Err(too_slow()))
}
