//! Removes rows in transactions of limited time.

use std::time::{Duration, Instant};

use diesel::QueryResult;
use diesel_async::AsyncPgConnection;

use super::pace::StepRows;
use crate::error::Error;
use crate::store::connection::sqlstate::SqlState;
use crate::store::connection::transactions::{begin_limited, commit, roll_back};

/// The time for which the database waits for this server, which may have been stopped: its locks hold others up.
const MAX_IDLE_TIME: Duration = Duration::from_secs(2);

/// What one step removes.
pub(super) trait Removal {
    type Removed: Send;

    /// Removes at most `max_rows` rows.
    fn remove(
        &self,
        conn: &mut AsyncPgConnection,
        max_rows: i64,
    ) -> impl Future<Output = QueryResult<Self::Removed>> + Send;

    /// Returns how many rows a step has removed, or has visited in vain.
    fn rows_of(removed: &Self::Removed) -> i64;
}

/// Takes a step in a transaction of limited time. If it takes too long, it is cancelled and done again with fewer rows.
pub(super) async fn take_step<R: Removal + Sync>(
    conn: &mut AsyncPgConnection,
    rows: &mut StepRows,
    removal: &R,
) -> Result<R::Removed, Error> {
    loop {
        let began = Instant::now();
        begin_limited(conn, rows.time_limit(), MAX_IDLE_TIME).await?;
        rows.note_round_trip(began.elapsed());
        // Not the whole transaction: how long its commit takes does not depend on the number of rows.
        let began = Instant::now();
        match removal.remove(conn, rows.count()).await {
            Ok(removed) => {
                rows.adapt(R::rows_of(&removed), began.elapsed());
                commit(conn).await?;
                return Ok(removed);
            }
            Err(error) => {
                // An error of the rollback is ignored: the first error is the cause.
                let _ = roll_back(conn).await;
                let was_limited = rows.is_limited();
                // Whatever failed, the next step is smaller: the smallest one has no limit that it could fail by.
                rows.halve();
                if !(was_limited && SqlState::of(&error).is_some_and(SqlState::is_cancelled)) {
                    return Err(error.into());
                }
            }
        }
    }
}
