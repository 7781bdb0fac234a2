//! Reads of the event log that need a transaction.

use diesel_async::AsyncConnection;

use crate::domain::scope::Scope;
use crate::engine::Engine;
use crate::error::Error;
use crate::store::lists::log_entries::{self, LogFilter, LogPage};
use crate::store::lists::pages::Page;

impl Engine {
    /// Returns a page of the event log. The transaction is for the planner's settings, which end with it.
    pub(crate) async fn list_log_entries(
        &self,
        scope: &Scope,
        filter: &LogFilter,
        page: Page,
    ) -> Result<LogPage, Error> {
        let mut conn = self.database().connection().await?;
        Ok(conn.transaction(async |conn| log_entries::list_log_entries(conn, scope, filter, page).await).await?)
    }
}
