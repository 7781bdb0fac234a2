//! Drops the weeks of the event log that are older than its retention.
//!
//! A partition is detached, which needs the lock of the event log for a moment, archived if there is a folder for
//! that, and dropped. Each step is done only after the one before it: a server that dies in between leaves the
//! table, the file or both, and the next round goes on from there. One server at a time drops weeks.

use std::path::Path;

use r2d2::ManageConnection;
use tokio::runtime::Handle;

use crate::background::maintenance::{on_thread, pool};
use crate::engine::Engine;
use crate::error::Error;
use crate::store::connection::blocking::{BlockingConnection, BlockingConnections};
use crate::store::retention::log::{
    OldLogPartition, count_log_blocks, detach_log_partition, drop_log_partition, find_old_log_partitions,
    has_old_log_lines, lock_dropping, move_old_log_lines, read_log_lines, unlock_dropping,
};

use super::archive::{Archive, remove_parts};
use super::{CaughtUp, RetentionSettings};

/// The number of blocks that are read at once: about 10,000 entries.
const BLOCKS_PER_READ: i64 = 128;

const TABLE: &str = "event_log";

/// Drops all old weeks. Returns their number.
pub async fn run_once(engine: &Engine, settings: &RetentionSettings) -> Result<usize, Error> {
    let (engine, settings, pool) = (engine.clone(), settings.clone(), pool(engine));
    on_thread(move || drop_old_partitions(&engine, &pool, &settings, &CaughtUp::default())).await
}

/// Drops all old weeks, unless another server is doing so. Blocks the thread.
pub(crate) fn drop_old_partitions(
    engine: &Engine,
    pool: &r2d2::Pool<BlockingConnections>,
    settings: &RetentionSettings,
    caught_up: &CaughtUp,
) -> Result<usize, Error> {
    let Some(age) = settings.log.length() else { return Ok(0) };
    let mut lag_seconds = 0.0;
    let dropped = drop_all(engine, pool, settings, age.as_secs_f64(), &mut lag_seconds);
    if dropped.is_ok() {
        caught_up.note(TABLE);
    }
    // After a failure, more may be left than what was found.
    let unknown_seconds = if dropped.is_ok() { 0.0 } else { caught_up.lag_seconds(TABLE) };
    engine.metrics().set_retention_lag(TABLE, lag_seconds.max(unknown_seconds));
    dropped
}

/// Does so, and says how long the oldest week that is left has been old enough.
fn drop_all(
    engine: &Engine,
    pool: &r2d2::Pool<BlockingConnections>,
    settings: &RetentionSettings,
    age_seconds: f64,
    lag_seconds: &mut f64,
) -> Result<usize, Error> {
    let mut conn = pool.get().map_err(|error| Error::unavailable(error.to_string()))?;
    let old = find_old_log_partitions(&mut conn, engine.now(), age_seconds)?;
    *lag_seconds = old.first().map_or(0.0, |oldest| oldest.lag_seconds);
    if old.is_empty() && !has_old_log_lines(&mut conn, engine.now(), age_seconds)? {
        return Ok(0);
    }
    // The transaction that holds the lock needs a connection of its own.
    let connections = BlockingConnections { url: engine.database().url().to_owned(), runtime: Handle::current() };
    let mut holder = connections.connect().map_err(|error| Error::unavailable(error.to_string()))?;
    if !lock_dropping(&mut holder)? {
        return Ok(0);
    }
    let dropped = drop_locked(engine, &mut conn, settings, age_seconds, lag_seconds);
    let unlocked = unlock_dropping(&mut holder);
    dropped.and_then(|count| Ok(unlocked.map(|()| count)?))
}

/// Drops all old weeks, under the lock.
fn drop_locked(
    engine: &Engine,
    conn: &mut BlockingConnection,
    settings: &RetentionSettings,
    age_seconds: f64,
    lag_seconds: &mut f64,
) -> Result<usize, Error> {
    let mut failure = move_all_old_log_lines(engine, conn, age_seconds).err();
    let old = find_old_log_partitions(conn, engine.now(), age_seconds)?;
    if let Some(dir) = &settings.archive_dir {
        remove_parts(dir).map_err(failed_in(dir))?;
    }
    *lag_seconds = 0.0;
    // The oldest come first. One that cannot be removed does not keep the others.
    for partition in &old {
        // An archive may take long.
        engine.metrics().set_retention_lag(TABLE, partition.lag_seconds.max(*lag_seconds));
        match remove(conn, partition, settings) {
            Ok(()) => {
                engine.metrics().count_removed(TABLE, 1);
                log::info!(partition = partition.name.as_str(); "a week of the event log was dropped");
            }
            Err(error) => {
                *lag_seconds = partition.lag_seconds.max(*lag_seconds);
                failure = failure.or(Some(error));
            }
        }
    }
    failure.map_or(Ok(old.len()), Err)
}

/// Moves old lines of the default partition to partitions of their own, which can be dropped.
fn move_all_old_log_lines(engine: &Engine, conn: &mut BlockingConnection, age_seconds: f64) -> Result<(), Error> {
    while move_old_log_lines(conn, engine.now(), age_seconds)? {}
    Ok(())
}

fn failed_in(dir: &Path) -> impl Fn(std::io::Error) -> Error {
    move |error| Error::Internal(format!("{}: {error}", dir.display()))
}

fn remove(
    conn: &mut BlockingConnection,
    partition: &OldLogPartition,
    settings: &RetentionSettings,
) -> Result<(), Error> {
    if partition.is_attached {
        detach_log_partition(conn, &partition.name)?;
    }
    if let Some(dir) = &settings.archive_dir {
        let archive = Archive::begin(dir, &partition.name).map_err(failed_in(dir))?;
        let (archive, lines) = copy(conn, &partition.name, archive)?;
        let file = archive.finish(lines).map_err(failed_in(dir))?;
        log::info!(lines, file = file.display().to_string(); "a week of the event log was archived");
    }
    Ok(drop_log_partition(conn, &partition.name)?)
}

/// Copies a detached partition. Returns the number of its entries.
fn copy(conn: &mut BlockingConnection, name: &str, mut archive: Archive) -> Result<(Archive, u64), Error> {
    let (blocks, mut count) = (count_log_blocks(conn, name)?, 0);
    for begin in (0..blocks).step_by(BLOCKS_PER_READ as usize) {
        let lines = read_log_lines(conn, name, begin, begin + BLOCKS_PER_READ)?;
        archive.add(&lines.text).map_err(|error| Error::Internal(format!("the archive of {name}: {error}")))?;
        count += lines.count as u64;
    }
    Ok((archive, count))
}
