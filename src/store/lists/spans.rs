//! Ranges of ids, in which lists search.

use diesel::prelude::QueryableByName;
use diesel::sql_types::{BigInt, Nullable};

use crate::domain::ids::NamespaceId;
use crate::store::lists::filtered_query::FilteredQuery;

/// A range of ids, and the direction in which it is read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Span {
    pub namespace: NamespaceId,
    /// All ids are higher.
    pub above: i64,
    /// All ids are lower.
    pub below: i64,
    pub descending: bool,
}

/// What a step of a search has read.
#[derive(Debug, Clone, Copy, Default, QueryableByName)]
pub(super) struct Examined {
    /// The number of ids. If there are fewer than requested, there are no more.
    #[diesel(sql_type = BigInt)]
    pub ids: i64,
    #[diesel(sql_type = Nullable<BigInt>)]
    pub last_id: Option<i64>,
}

impl Span {
    /// Returns all ids of a namespace.
    pub(super) fn all(namespace: NamespaceId, descending: bool) -> Self {
        Span { namespace, above: 0, below: i64::MAX, descending }
    }

    /// Returns the direction of the `ORDER BY` expression.
    pub(super) fn direction(&self) -> &'static str {
        if self.descending { "DESC" } else { "ASC" }
    }

    /// Returns the aggregate function that finds the last id.
    pub(super) fn last(&self) -> &'static str {
        if self.descending { "min" } else { "max" }
    }

    /// Returns the part behind `position`.
    pub(super) fn behind(self, position: i64) -> Self {
        match self.descending {
            false => Span { above: self.above.max(position), ..self },
            true => Span { below: self.below.min(position), ..self },
        }
    }

    /// Returns the position behind which the span begins.
    pub(super) fn edge(&self) -> i64 {
        if self.descending { self.below } else { self.above }
    }

    /// Appends the condition that an id is in the span. The bounds are parameters: a planner that knew them
    /// would trust its statistics of ids, which are older than the newest ids.
    pub(super) fn limit<'q>(&self, query: FilteredQuery<'q>, id: &str) -> FilteredQuery<'q> {
        query.and::<BigInt, _>(&format!("{id} >"), self.above).and::<BigInt, _>(&format!("{id} <"), self.below)
    }
}
