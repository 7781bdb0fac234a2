//! `publish_events`: facts are stored, with the work that follows from them.

use std::collections::BTreeSet;

use diesel_async::AsyncPgConnection;

use crate::domain::event::NewEvent;
use crate::error::Error;
use crate::store::DEFAULT_NAMESPACE;
use crate::store::events::{StoredEvent, publish_events};
use crate::store::ordering::lock_keys;

use super::changes::advance_keys;
use super::{Engine, transaction};

impl Engine {
    /// Stores events, all or none, in the order given; answers what the database added.
    pub async fn publish_events(&self, events: Vec<NewEvent>) -> Result<(Vec<NewEvent>, Vec<StoredEvent>), Error> {
        let engine = self.clone();
        self.detached(async move {
            let (stored, released) = transaction!(engine, |conn| publish(conn, &engine, &events).await)?;
            let mut entered: Vec<Vec<String>> = events
                .iter()
                .zip(&stored)
                .filter(|(_, stored)| stored.is_ready)
                .map(|(event, _)| event.tags.as_slice().to_vec())
                .collect();
            entered.extend(released);
            engine.wake(&entered);
            Ok((events, stored))
        })
        .await
    }
}

async fn publish(
    conn: &mut AsyncPgConnection,
    engine: &Engine,
    events: &[NewEvent],
) -> Result<(Vec<StoredEvent>, Vec<Vec<String>>), Error> {
    let keys: BTreeSet<String> =
        events.iter().filter(|event| !event.tags.is_empty()).filter_map(|event| event.ordering_key.clone()).collect();
    if !keys.is_empty() {
        // Taken before the ids: the order of a key must be the order of commits.
        lock_keys(conn, DEFAULT_NAMESPACE, &keys.iter().cloned().collect::<Vec<_>>()).await?;
    }
    let stored = publish_events(conn, DEFAULT_NAMESPACE, engine.now(), events).await?;
    let released = advance_keys(conn, keys, engine.now()).await?;
    Ok((stored, released))
}
