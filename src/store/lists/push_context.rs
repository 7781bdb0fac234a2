//! What people call the events and subscriptions of pushes, and what keeps pushes from being sent.

use std::collections::{BTreeMap, BTreeSet};

use diesel::QueryResult;
use diesel::prelude::QueryableByName;
use diesel::sql_types::{Array, BigInt, Integer, Text};
use diesel_async::{AsyncPgConnection, RunQueryDsl};

use crate::domain::ids::{EventId, SubscriptionId};
use crate::domain::scope::Scope;
use crate::store::connection::cached::CachedExt;
use crate::store::statement::statement;
use crate::store::tables::endpoints::{EndpointRow, load_endpoints};
use crate::store::tables::subscriptions::{SubscriptionAddress, addresses_of_subscriptions};

/// The events, subscriptions and endpoints of some pushes.
#[derive(Debug, Default)]
pub struct PushContext {
    titles: BTreeMap<EventId, String>,
    /// Those that have not been deleted.
    subscriptions: Vec<SubscriptionAddress>,
    endpoints: Vec<EndpointRow>,
}

impl PushContext {
    /// Returns the title of an event, or `None` if the event was removed.
    pub fn title(&self, id: EventId) -> Option<&str> {
        self.titles.get(&id).map(String::as_str)
    }

    /// Returns a subscription, or `None` if it was deleted.
    pub fn subscription(&self, id: SubscriptionId) -> Option<&SubscriptionAddress> {
        self.subscriptions.iter().find(|subscription| subscription.id == id)
    }

    /// Returns the endpoint to which a subscription sends, or `None` if nothing is known about it.
    pub fn endpoint(&self, id: SubscriptionId) -> Option<&EndpointRow> {
        let url = &self.subscription(id)?.url;
        self.endpoints.iter().find(|endpoint| endpoint.url == *url)
    }
}

#[derive(QueryableByName)]
struct Titled {
    #[diesel(sql_type = BigInt)]
    id: EventId,
    #[diesel(sql_type = Text)]
    title: String,
}

/// Reads the context of pushes of these events to these subscriptions. The cost is that of a look-up for each.
pub async fn read_push_context(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    events: &BTreeSet<EventId>,
    subscriptions: &BTreeSet<SubscriptionId>,
) -> QueryResult<PushContext> {
    let titles = titles_of_events(conn, scope, events).await?;
    if subscriptions.is_empty() {
        return Ok(PushContext { titles, ..PushContext::default() });
    }
    let subscriptions = addresses_of_subscriptions(conn, scope, subscriptions).await?;
    let urls: Vec<&str> = subscriptions.iter().map(|subscription| subscription.url.as_str()).collect();
    let endpoints = load_endpoints(conn, scope, &urls).await?;
    Ok(PushContext { titles, subscriptions, endpoints })
}

async fn titles_of_events(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    ids: &BTreeSet<EventId>,
) -> QueryResult<BTreeMap<EventId, String>> {
    if ids.is_empty() {
        return Ok(BTreeMap::new());
    }
    let rows: Vec<Titled> = statement!("titles_of_events")
        .query()
        .bind::<Integer, _>(scope.namespace)
        .bind::<Array<BigInt>, _>(ids.iter().copied().collect::<Vec<_>>())
        .cached()
        .load(conn)
        .await?;
    Ok(rows.into_iter().map(|row| (row.id, row.title)).collect())
}
