//! Who called, gathered until it is written down.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use tokio::time::Instant;

use crate::error::Error;
use crate::store::tables::workers::{Sighting, record_sightings};

use crate::engine::Engine;

/// More workers than this between two writings are not all remembered.
const MAX_GATHERED: usize = 100_000;

/// How many sightings one statement writes.
const ROWS_PER_STATEMENT: usize = 5_000;

/// Sightings, gathering.
#[derive(Default)]
pub struct WorkerSightings {
    seen: Mutex<HashMap<String, Seen>>,
}

struct Seen {
    at: Instant,
    tags: Option<Vec<String>>,
}

impl WorkerSightings {
    /// A worker called; with `tags` if it asked for work.
    pub fn note(&self, worker_id: &str, tags: Option<&[String]>) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if let Some(known) = seen.get_mut(worker_id) {
            known.at = now;
            if let Some(tags) = tags {
                known.tags = Some(tags.to_vec());
            }
        } else if seen.len() < MAX_GATHERED {
            seen.insert(worker_id.to_owned(), Seen { at: now, tags: tags.map(<[String]>::to_vec) });
        }
    }

    fn take(&self) -> Vec<Sighting> {
        let gathered = std::mem::take(&mut *self.seen.lock().unwrap_or_else(PoisonError::into_inner));
        gathered
            .into_iter()
            .map(|(worker_id, seen)| Sighting {
                worker_id,
                tags: seen.tags,
                seconds_ago: seen.at.elapsed().as_secs_f64(),
            })
            .collect()
    }
}

impl Engine {
    /// Writes down who was seen since the last time.
    pub async fn record_sightings(&self) -> Result<usize, Error> {
        let worker_sightings = self.worker_sightings().take();
        for rows in worker_sightings.chunks(ROWS_PER_STATEMENT) {
            let mut conn = self.database().connection().await?;
            record_sightings(&mut conn, &self.scope(), rows).await?;
        }
        Ok(worker_sightings.len())
    }
}
