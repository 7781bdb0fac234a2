//! `publish_events`: facts are stored, with the work that follows from them.

use std::collections::BTreeSet;
use std::sync::Arc;

use diesel_async::AsyncPgConnection;

use crate::domain::event::NewEvent;
use crate::error::Error;
use crate::store::DEFAULT_NAMESPACE;
use crate::store::deliveries::FirstMoments;
use crate::store::events::{StoredEvent, publish_events};
use crate::store::ordering::lock_keys;

use super::changes::advance_keys;
use super::fusion::{Answers, split};
use super::marks::Place;
use super::{Engine, Entered, transaction};

/// The events of one request, which are stored together or not at all.
pub type Publication = Arc<Vec<NewEvent>>;

impl Engine {
    /// Stores events, all or none, in the order given; answers what the database added.
    pub async fn publish_events(&self, events: Publication) -> Result<Vec<StoredEvent>, Error> {
        let weight = events.len();
        self.lanes.publish.call(events, weight).await
    }

    /// Stores the events of many requests in one transaction.
    pub(super) async fn publish_fused(&self, publications: Vec<Publication>) -> Answers<Vec<StoredEvent>> {
        split(publications, &|publications: Vec<Publication>| {
            let engine = self.clone();
            async move { engine.publish_all(&publications).await }
        })
        .await
    }

    async fn publish_all(&self, publications: &[Publication]) -> Result<Vec<Vec<StoredEvent>>, Error> {
        let events: Vec<&NewEvent> = publications.iter().flat_map(|events| events.iter()).collect();
        let has_keys = events.iter().any(|event| event.ordering_key.is_some());
        let (stored, released) = if has_keys {
            transaction!(self, |conn| publish_in_order(conn, self, &events).await)?
        } else {
            let mut conn = self.database.connection().await?;
            (publish_events(&mut conn, DEFAULT_NAMESPACE, self.now(), &events).await?, Vec::new())
        };
        let entered = |(event, stored): (&&NewEvent, &StoredEvent)| {
            let place = Place { rank: -event.priority, seq: stored.ready_seq? };
            Some(Entered { tags: event.tags.as_slice().to_vec(), place })
        };
        let mut entered: Vec<Entered> = events.iter().zip(&stored).filter_map(entered).collect();
        entered.extend(released);
        self.moments.wait_for(&FirstMoments {
            due_at: stored.iter().filter_map(|stored| stored.due_at).min(),
            expires_at: events.iter().filter_map(|event| event.expires_at).min(),
            look_at: None,
        });
        self.wake(&entered);
        let mut stored = stored.into_iter();
        Ok(publications.iter().map(|events| stored.by_ref().take(events.len()).collect()).collect())
    }
}

async fn publish_in_order(
    conn: &mut AsyncPgConnection,
    engine: &Engine,
    events: &[&NewEvent],
) -> Result<(Vec<StoredEvent>, Vec<Entered>), Error> {
    let with_work = events.iter().filter(|event| !event.tags.is_empty());
    let keys: BTreeSet<String> = with_work.filter_map(|event| event.ordering_key.clone()).collect();
    // Taken before the ids: the order of a key must be the order of commits.
    lock_keys(conn, DEFAULT_NAMESPACE, &keys.iter().cloned().collect::<Vec<_>>()).await?;
    let stored = publish_events(conn, DEFAULT_NAMESPACE, engine.now(), events).await?;
    let released = advance_keys(conn, keys, engine.now()).await?;
    Ok((stored, released))
}
