//! Searches the payloads of events that were found by everything else.
//!
//! Payloads are checked here and not by the database. Its operators fail for a payload that contains `\u0000`, and an
//! error in one row would be an error of the whole list; and `items.-1` would be an index, which leads around what is
//! redacted.
//!
//! A page of a list, or a step of an operation, reads at most [`limits::SEARCH_PAYLOADS`] payloads, and of those over
//! 4 KiB at most [`limits::SEARCH_PAYLOAD_BYTES`]. What it has not read is left to the next one.

use diesel::QueryResult;
use diesel::prelude::QueryableByName;
use diesel::sql_types::{Array, BigInt, Integer, Json, Nullable};
use diesel_async::{AsyncPgConnection, RunQueryDsl};

use crate::domain::ids::NamespaceId;
use crate::domain::limits;
use crate::store::lists::event_filter::EventFilter;
use crate::store::statement::statement;
use crate::store::tables::columns::JsonColumn;

/// The number of payloads that are in memory at once.
const BATCH: usize = 200;

/// A search through payloads, with what it may still read.
#[derive(Debug)]
pub(super) struct PayloadSearch<'a> {
    filter: &'a EventFilter,
    payloads: i64,
    bytes: i64,
}

/// The outcome of a search through some payloads.
#[derive(Debug, Default)]
pub(super) struct Searched {
    /// The number of events that were examined, from the first on.
    pub events: usize,
    /// The ids of those that match, in the given order.
    pub matching: Vec<i64>,
}

#[derive(QueryableByName)]
struct PayloadRow {
    #[diesel(sql_type = BigInt)]
    id: i64,
    #[diesel(sql_type = Nullable<Json>)]
    payload: Option<JsonColumn>,
}

impl<'a> PayloadSearch<'a> {
    /// Returns the search for a filter, or `None` if it has no conditions on payloads.
    pub(super) fn of(filter: &'a EventFilter) -> Option<Self> {
        filter.is_about_payloads().then_some(PayloadSearch {
            filter,
            payloads: limits::SEARCH_PAYLOADS,
            bytes: limits::SEARCH_PAYLOAD_BYTES,
        })
    }

    /// Returns whether it has read all that it may read.
    pub(super) fn is_over(&self) -> bool {
        self.payloads <= 0 || self.bytes <= 0
    }

    /// Returns the number of payloads that it may still read.
    pub(super) fn payloads_left(&self) -> i64 {
        self.payloads
    }

    /// Examines events until `limit` of them match, or until it is over.
    pub(super) async fn search(
        &mut self,
        conn: &mut AsyncPgConnection,
        namespace: NamespaceId,
        ids: &[i64],
        limit: i64,
    ) -> QueryResult<Searched> {
        let mut searched = Searched::default();
        while !self.is_over() && searched.events < ids.len() {
            let left = usize::try_from(self.payloads).unwrap_or(0);
            let batch = &ids[searched.events..ids.len().min(searched.events + BATCH.min(left))];
            for row in self.read(conn, namespace, batch).await? {
                searched.events += 1;
                if self.count(row.payload.as_ref()) {
                    // Others wait for this thread while it parses.
                    tokio::task::yield_now().await;
                }
                if self.filter.admits(row.payload.as_ref().map(|json| &json.0)) {
                    searched.matching.push(row.id);
                    if searched.matching.len() as i64 == limit {
                        return Ok(searched);
                    }
                }
            }
        }
        Ok(searched)
    }

    /// Reads payloads: all of the batch, unless they are large.
    async fn read(
        &self,
        conn: &mut AsyncPgConnection,
        namespace: NamespaceId,
        ids: &[i64],
    ) -> QueryResult<Vec<PayloadRow>> {
        statement!("search_payloads")
            .query()
            .bind::<Integer, _>(namespace)
            .bind::<Array<BigInt>, _>(ids)
            .bind::<BigInt, _>(self.bytes)
            .load(conn)
            .await
    }

    /// Counts a payload. Returns whether it is large.
    fn count(&mut self, payload: Option<&JsonColumn>) -> bool {
        /// From this size on, the size of a payload is stored.
        const LARGE: usize = 4 * 1024;
        self.payloads -= 1;
        let bytes = payload.map_or(0, |json| json.0.as_str().len());
        if bytes > LARGE {
            self.bytes -= bytes as i64;
        }
        bytes > LARGE
    }
}
