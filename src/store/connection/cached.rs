//! Prepared statements that stay prepared.
//!
//! Diesel does not keep `sql_query` statements in its cache, so each call would be parsed and
//! planned anew: about three times the cost of a claim. The texts in `sql/` are fixed, one per
//! file, so keeping them is safe; never use this on text that varies with its input, since the
//! cache has no bound.

use diesel::QueryResult;
use diesel::pg::Pg;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};

/// A query whose prepared statement is kept by its connection.
#[derive(Debug)]
pub struct Cached<Q>(Q);

/// Adds [`CachedExt::cached`] to queries.
pub trait CachedExt: Sized {
    /// Keeps the prepared statement.
    fn cached(self) -> Cached<Self> {
        Cached(self)
    }
}

impl<Q> CachedExt for Q {}

impl<Q: QueryFragment<Pg>> QueryFragment<Pg> for Cached<Q> {
    fn walk_ast<'b>(&'b self, pass: AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        self.0.walk_ast(pass)
    }

    fn is_safe_to_cache_prepared(&self, _: &Pg) -> QueryResult<bool> {
        Ok(true)
    }
}

impl<Q> QueryId for Cached<Q> {
    type QueryId = ();
    const HAS_STATIC_QUERY_ID: bool = false;
}

impl<Q: Query> Query for Cached<Q> {
    type SqlType = Q::SqlType;
}
