//! Caching of prepared `sql_query` statements.
//!
//! Diesel does not cache prepared `sql_query` statements, so PostgreSQL would parse and plan each
//! call again, which triples the cost of a claim. The texts in `sql/` are fixed, one per file, so
//! caching them is safe. Never cache a text that varies with its input: the cache is unbounded.

use diesel::QueryResult;
use diesel::pg::Pg;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};

/// A query whose prepared statement is cached on the connection.
#[derive(Debug)]
pub(crate) struct Cached<Q>(Q);

/// Adds [`CachedExt::cached`] to queries.
pub(crate) trait CachedExt: Sized {
    /// Caches the prepared statement on the connection.
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
