//! Searches for leases that are not on the list of leases, and puts them on it.
//!
//! There should be none. But work whose lease nobody watches would be held forever, and with it
//! all that waits behind its ordering key; so a mistake there must not last. The search walks
//! through all deliveries in small steps, since no index says which of them are held.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{Service, jittered};
use crate::domain::ids::DeliveryId;
use crate::engine::Engine;
use crate::error::Error;

/// Between two steps.
const INTERVAL: Duration = Duration::from_secs(5);

/// How many times as long as a step the pause after it is at least.
const REST: u32 = 50;

/// Between two walks through all deliveries.
const PAUSE_BETWEEN_WALKS: Duration = Duration::from_secs(60);

/// How far the search has come. A new one begins with the first delivery.
#[derive(Debug, Default)]
pub struct Cursor {
    /// The last delivery that was looked at, unless the search begins anew.
    after_id: Option<DeliveryId>,
}

impl Cursor {
    /// Returns whether the next step begins with the first delivery.
    pub fn is_at_beginning(&self) -> bool {
        self.after_id.is_none()
    }
}

/// Takes one step; returns how many leases it has put on the list.
pub async fn run_once(engine: &Engine, cursor: &mut Cursor) -> Result<usize, Error> {
    let (found, last_id) = engine.watch_unwatched_leases(cursor.after_id).await?;
    cursor.after_id = last_id;
    Ok(found)
}

/// Runs until the server stops.
pub async fn run(engine: Engine, shutdown: CancellationToken) {
    let cursor = Arc::new(Mutex::new(Cursor::default()));
    let service = Service::every("unwatched", INTERVAL);
    service
        .run(engine, shutdown, |engine| {
            let cursor = cursor.clone();
            async move {
                let mut cursor = cursor.lock().await;
                let began = Instant::now();
                run_once(&engine, &mut cursor).await?;
                let least = if cursor.is_at_beginning() { PAUSE_BETWEEN_WALKS } else { INTERVAL };
                Ok(Some(jittered(least.max(began.elapsed() * REST))))
            }
        })
        .await;
}
