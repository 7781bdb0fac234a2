//! The newest settled entries of the event log, which all streams share.

use std::collections::VecDeque;
use std::mem::size_of;
use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};

use crate::store::lists::log_tail::TailEntry;

/// The maximum number of bytes that the entries take in memory, approximately. What is older is dropped.
const MAX_BYTES: usize = 32 * 1024 * 1024;

/// The number of ids that are read before the present end, when the first stream begins. Clients that connect again
/// after a restart of the server find in memory what they have missed, also under a high load.
const BACKLOG_IDS: i64 = 16_384;

/// The number of ids that are read at a time.
const IDS_PER_READ: i64 = 1_024;

/// The number of ids beyond which it is not worth to read all that was missed during an outage of the database. Up to
/// it, to read them once for all streams is cheaper than to let each stream read its own pages.
const MAX_MISSED_IDS: i64 = 1_048_576;

/// Partitions that end longer than this before the newest entry are not read. It is for a database whose clock was set
/// back.
const MARGIN: TimeDelta = TimeDelta::days(1);

/// Entries that were read together, of all namespaces, in the order of ids. There are no others with ids above `above`,
/// up to `up_to`.
#[derive(Debug)]
pub(crate) struct TrailBatch {
    pub above: i64,
    /// The id of the last entry. A position is always the id of an entry that is committed: after a crash, the database
    /// may hand out others again.
    pub up_to: i64,
    pub entries: Vec<TailEntry>,
}

impl TrailBatch {
    /// Returns about how many bytes it takes in memory.
    fn bytes(&self) -> usize {
        let text = |text: &Option<String>| text.as_ref().map_or(0, String::capacity);
        let bytes = |TailEntry { entry, .. }: &TailEntry| {
            let texts = [&entry.worker_id, &entry.error_message, &entry.reason, &entry.error_kind, &entry.actor];
            size_of::<TailEntry>() + texts.into_iter().map(text).sum::<usize>()
        };
        size_of::<TrailBatch>() + self.entries.iter().map(bytes).sum::<usize>()
    }
}

/// The batches that are kept, without gaps between them.
#[derive(Debug, Default)]
pub(super) struct RecentEntries {
    batches: VecDeque<Arc<TrailBatch>>,
    bytes: usize,
    /// Grows each time the batches are dropped and begun anew.
    generation: u64,
    /// All ids up to this one have been read.
    read_to: i64,
    /// Whether the batches have reached the end of the log at least once.
    is_complete: bool,
    newest: Option<DateTime<Utc>>,
}

/// What to read next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NextRead {
    pub generation: u64,
    pub above: i64,
    pub up_to: i64,
    pub since: Option<DateTime<Utc>>,
    /// Whether nothing more is settled behind it.
    pub is_last: bool,
}

/// What is there behind a position.
#[derive(Debug)]
pub(super) enum Found {
    /// Nothing has been read yet.
    Unknown,
    /// The batch with the next entries.
    Batch(Arc<TrailBatch>),
    /// Nothing yet.
    Nothing,
    /// Entries that are no longer kept. Those above this id are.
    Dropped(i64),
}

impl RecentEntries {
    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    /// Returns the position at which streams begin that want only later entries, if it is known.
    pub(super) fn present_end(&self) -> Option<i64> {
        self.end().filter(|_| self.is_complete)
    }

    fn end(&self) -> Option<i64> {
        self.batches.back().map(|batch| batch.up_to)
    }

    /// Returns what to read next so that all ids up to `settled` will be known, or `None` if they are.
    pub(super) fn next_read(&mut self, settled: i64) -> Option<NextRead> {
        let has_gap = settled < self.read_to || settled.saturating_sub(self.read_to) > MAX_MISSED_IDS;
        if has_gap && !self.batches.is_empty() {
            self.clear();
        }
        let above = match self.end() {
            Some(_) if settled == self.read_to => return None,
            Some(end) => end,
            None => settled.saturating_sub(BACKLOG_IDS).max(0),
        };
        let since = self.newest.and_then(|newest| newest.checked_sub_signed(MARGIN));
        // There may be many ids without entries behind the last one.
        let up_to = settled.min(self.read_to.max(above) + IDS_PER_READ);
        Some(NextRead { generation: self.generation, above, up_to, since, is_last: up_to == settled })
    }

    /// Adds what was read for `read`: all entries up to `read_to`.
    pub(super) fn add(&mut self, read: NextRead, read_to: i64, entries: Vec<TailEntry>) {
        let is_continued = self.end().is_none_or(|end| end == read.above);
        if self.generation != read.generation || !is_continued {
            return;
        }
        self.read_to = read_to;
        self.is_complete |= read.is_last && read_to == read.up_to;
        if entries.is_empty() && !self.batches.is_empty() {
            return;
        }
        self.newest = self.newest.max(entries.iter().map(|TailEntry { entry, .. }| entry.created_at).max());
        let up_to = entries.last().map_or(read.above, |TailEntry { entry, .. }| entry.id);
        let batch = TrailBatch { above: read.above, up_to, entries };
        self.bytes += batch.bytes();
        self.batches.push_back(Arc::new(batch));
        while self.bytes > MAX_BYTES && self.batches.len() > 1 {
            self.bytes -= self.batches.pop_front().map_or(0, |batch| batch.bytes());
        }
    }

    /// Returns what follows a position.
    pub(super) fn find_behind(&self, position: i64) -> Found {
        let Some(first) = self.batches.front() else { return Found::Unknown };
        if position < first.above {
            return Found::Dropped(first.above);
        }
        let index = self.batches.partition_point(|batch| batch.up_to <= position);
        self.batches.get(index).cloned().map_or(Found::Nothing, Found::Batch)
    }

    /// Drops everything.
    pub(super) fn clear(&mut self) {
        *self = RecentEntries { generation: self.generation + 1, ..RecentEntries::default() };
    }
}

#[cfg(test)]
mod tests;
