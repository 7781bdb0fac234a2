//! Searches for leases that are missing from the list of leases, and adds them.
//!
//! There should be none. But the lease reaper reads that list, so a delivery with a missing lease
//! would stay PROCESSING forever and block the later deliveries of its ordering key. This search
//! repairs that. It reads all deliveries in small steps, because no index tells which are held.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{Service, jittered};
use crate::domain::ids::DeliveryKey;
use crate::engine::Engine;
use crate::error::Error;

/// The time between two steps.
const INTERVAL: Duration = Duration::from_secs(5);

/// The pause after a step is at least this many times as long as the step.
const PAUSE_FACTOR: u32 = 50;

/// The time between two searches of all deliveries.
const SEARCH_INTERVAL: Duration = Duration::from_secs(60);

/// The position of the search. The default is before the first delivery.
#[derive(Debug, Default)]
pub struct Cursor {
    /// The last delivery that was read. `None` at the beginning of a search.
    after: Option<DeliveryKey>,
}

impl Cursor {
    /// Returns whether the next step begins with the first delivery.
    pub fn is_at_beginning(&self) -> bool {
        self.after.is_none()
    }
}

/// Runs one step. Returns the number of leases that it has added to the list.
pub async fn run_once(engine: &Engine, cursor: &mut Cursor) -> Result<usize, Error> {
    let (found, last) = engine.watch_unwatched_leases(cursor.after).await?;
    cursor.after = last;
    Ok(found)
}

/// Runs steps until the server stops.
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
                let minimum = if cursor.is_at_beginning() { SEARCH_INTERVAL } else { INTERVAL };
                Ok(Some(jittered(minimum.max(began.elapsed() * PAUSE_FACTOR))))
            }
        })
        .await;
}
