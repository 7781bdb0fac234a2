//! The transactions that write to the event log at the moment.

use diesel::QueryResult;
use diesel::prelude::QueryableByName;
use diesel::sql_types::{Array, BigInt, Bool, Text};
use diesel_async::AsyncPgConnection;

use crate::store::connection::cached::CachedExt;
use crate::store::connection::whole_result::LoadOne;
use crate::store::statement::statement;

/// How far the ids of the event log have been handed out, and who may hold some of them. The statement explains it.
#[derive(Debug, Clone, QueryableByName)]
pub(crate) struct LogWriters {
    /// The last id that was handed out.
    #[diesel(sql_type = BigInt)]
    pub last_id: i64,
    /// The open transactions that may have got an id up to `last_id`.
    #[diesel(sql_type = Array<Text>)]
    pub open: Vec<String>,
    /// Whether one of them is prepared for a commit in two phases.
    #[diesel(sql_type = Bool)]
    pub has_prepared: bool,
    /// Whether the database is a standby, which does not know the transactions of its primary.
    #[diesel(sql_type = Bool)]
    pub is_standby: bool,
}

/// Returns the last id of the event log, and the open transactions that may hold such ids.
pub(crate) async fn read_log_writers(conn: &mut AsyncPgConnection) -> QueryResult<LogWriters> {
    statement!("read_log_writers").query().cached().load_one(conn).await
}
