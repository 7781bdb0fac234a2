//! Worker sightings: the workers that called, collected until they are written to the database.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use tokio::time::Instant;

use crate::error::Error;
use crate::store::tables::workers::{Sighting, record_sightings};

use crate::engine::Engine;

/// The maximum number of workers that are collected between two writes. Further workers are ignored.
const MAX_GATHERED: usize = 100_000;

/// The maximum number of sightings that one statement writes.
const ROWS_PER_STATEMENT: usize = 5_000;

/// The workers that have called since the last write.
#[derive(Default)]
pub struct WorkerSightings {
    seen: Mutex<HashMap<String, Seen>>,
}

struct Seen {
    at: Instant,
    tags: Option<Vec<String>>,
}

impl WorkerSightings {
    /// Records that a worker called. `tags` are those of its claim, if the call was a claim.
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
    /// Writes the sightings since the last call. Returns their number.
    pub async fn record_sightings(&self) -> Result<usize, Error> {
        let sightings = self.worker_sightings().take();
        for rows in sightings.chunks(ROWS_PER_STATEMENT) {
            let mut conn = self.database().connection().await?;
            record_sightings(&mut conn, &self.scope(), rows).await?;
        }
        Ok(sightings.len())
    }
}
