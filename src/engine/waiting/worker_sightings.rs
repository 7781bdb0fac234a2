//! Worker sightings: the workers that called, collected until they are written to the database.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::domain::ids::NamespaceId;
use crate::error::Error;
use crate::store::tables::workers::{Sighting, record_sightings};

use crate::engine::Engine;
use crate::engine::own_task::in_own_task;

/// The maximum number of workers that are collected between two writes. Further workers are ignored. A namespace may have
/// as many as there is room for others, so a single one gets half, and leaves room for the workers of others.
const MAX_GATHERED: usize = 100_000;

/// The maximum number of sightings that one statement writes.
const ROWS_PER_STATEMENT: usize = 5_000;

/// The workers that have called since the last write.
#[derive(Default)]
pub struct WorkerSightings {
    gathered: Mutex<Gathered>,
}

#[derive(Default)]
struct Gathered {
    by_namespace: HashMap<NamespaceId, HashMap<String, Seen>>,
    /// The number of workers of all namespaces.
    count: usize,
}

struct Seen {
    at: Instant,
    tags: Option<Vec<String>>,
}

impl WorkerSightings {
    /// Records that a worker of a namespace called. `tags` are those of its claim, if the call was a claim.
    pub fn note(&self, namespace: NamespaceId, worker_id: &str, tags: Option<&[String]>) {
        let mut gathered = self.gathered.lock().unwrap_or_else(PoisonError::into_inner);
        let Gathered { by_namespace, count } = &mut *gathered;
        let seen = by_namespace.entry(namespace).or_default();
        let now = Instant::now();
        if let Some(known) = seen.get_mut(worker_id) {
            known.at = now;
            if let Some(tags) = tags {
                known.tags = Some(tags.to_vec());
            }
        } else if seen.len() < MAX_GATHERED.saturating_sub(*count) {
            *count += 1;
            seen.insert(worker_id.to_owned(), Seen { at: now, tags: tags.map(<[String]>::to_vec) });
        }
    }

    fn take(&self) -> Vec<Sighting> {
        let gathered = std::mem::take(&mut *self.gathered.lock().unwrap_or_else(PoisonError::into_inner));
        let of_namespace = |(namespace, seen): (NamespaceId, HashMap<String, Seen>)| {
            seen.into_iter().map(move |(worker_id, seen)| Sighting {
                namespace,
                worker_id,
                tags: seen.tags,
                seconds_ago: seen.at.elapsed().as_secs_f64(),
            })
        };
        gathered.by_namespace.into_iter().flat_map(of_namespace).collect()
    }

    /// Takes back sightings that were taken at `taken_at` and could not be written.
    fn give_back(&self, sightings: &[Sighting], taken_at: Instant) {
        let mut gathered = self.gathered.lock().unwrap_or_else(PoisonError::into_inner);
        let Gathered { by_namespace, count } = &mut *gathered;
        for Sighting { namespace, worker_id, tags, seconds_ago } in sightings {
            let seen = by_namespace.entry(*namespace).or_default();
            if let Some(known) = seen.get_mut(worker_id) {
                // It has called again since.
                known.tags = known.tags.take().or_else(|| tags.clone());
            } else if seen.len() < MAX_GATHERED.saturating_sub(*count) {
                *count += 1;
                let at = taken_at.checked_sub(Duration::from_secs_f64(*seconds_ago)).unwrap_or(taken_at);
                seen.insert(worker_id.clone(), Seen { at, tags: tags.clone() });
            }
        }
    }
}

impl Engine {
    /// Writes the sightings since the last call. Returns their number.
    pub async fn record_sightings(&self) -> Result<usize, Error> {
        let engine = self.clone();
        in_own_task(async move { engine.write_sightings().await }).await
    }

    async fn write_sightings(&self) -> Result<usize, Error> {
        let taken_at = Instant::now();
        let sightings = self.worker_sightings().take();
        for (index, rows) in sightings.chunks(ROWS_PER_STATEMENT).enumerate() {
            if let Err(error) = self.write_chunk(rows).await {
                self.worker_sightings().give_back(&sightings[index * ROWS_PER_STATEMENT..], taken_at);
                return Err(error);
            }
        }
        Ok(sightings.len())
    }

    async fn write_chunk(&self, rows: &[Sighting]) -> Result<(), Error> {
        let mut conn = self.database().connection().await?;
        record_sightings(&mut conn, self.now(), rows).await?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_with_too_many_workers_leaves_room_for_those_of_others() {
        let sightings = WorkerSightings::default();
        let (loud, quiet) = (NamespaceId::DEFAULT, NamespaceId(2));
        for number in 0..=MAX_GATHERED {
            sightings.note(loud, &format!("loud:{number}"), None);
        }
        for number in 0..1_000 {
            sightings.note(quiet, &format!("quiet:{number}"), None);
        }
        sightings.note(loud, "loud:0", Some(&["t".to_owned()]));
        let taken = sightings.take();
        let of = |namespace| taken.iter().filter(|sighting| sighting.namespace == namespace).count();
        assert_eq!((of(loud), of(quiet)), (MAX_GATHERED / 2, 1_000));
        let known = taken.iter().find(|sighting| sighting.worker_id == "loud:0").unwrap();
        assert!(known.tags.is_some(), "what is known is kept up to date");
    }

    #[test]
    fn what_could_not_be_written_is_kept_beside_what_came_since() {
        let sightings = WorkerSightings::default();
        let namespace = NamespaceId::DEFAULT;
        sightings.note(namespace, "gone:1", Some(&["a".to_owned()]));
        sightings.note(namespace, "back:1", Some(&["b".to_owned()]));
        let (taken_at, taken) = (Instant::now(), sightings.take());
        sightings.note(namespace, "back:1", None);
        sightings.give_back(&taken, taken_at);
        let mut kept = sightings.take();
        kept.sort_by(|one, other| one.worker_id.cmp(&other.worker_id));
        let kept: Vec<_> = kept.iter().map(|kept| (kept.worker_id.as_str(), kept.tags.as_deref())).collect();
        assert_eq!(kept, [("back:1", Some(&["b".to_owned()][..])), ("gone:1", Some(&["a".to_owned()][..]))]);
    }
}
