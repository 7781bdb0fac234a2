//! How many dead letters one transaction writes.
//!
//! Each copies its event, and an event may have thousands of pushes of a megabyte each that end
//! together. A transaction that wrote them all would hold its locks for as long, among them that of
//! the row that counts the event's pushes, for which everybody waits who ends another of them.

use crate::store::tables::deliveries::Loaded;

/// Dead letters per transaction.
const DEAD_LETTERS: usize = 100;

/// Bytes of payloads that they copy, unless it is a single one.
const COPIED_BYTES: usize = 4 * 1024 * 1024;

/// What is left of the dead letters that a transaction may write.
#[derive(Debug)]
pub(crate) struct DeadLetterBudget {
    letters: usize,
    bytes: usize,
}

impl DeadLetterBudget {
    pub fn new() -> Self {
        DeadLetterBudget { letters: DEAD_LETTERS, bytes: COPIED_BYTES }
    }

    /// Returns whether a delivery may be given up in this transaction. An event's own work leaves no
    /// dead letter and always may be.
    pub fn admits(&mut self, loaded: &Loaded) -> bool {
        if loaded.delivery.subscription_id.is_none() {
            return true;
        }
        let bytes = loaded.large_payload_bytes.map_or(0, |bytes| usize::try_from(bytes).unwrap_or(0));
        let is_first = self.letters == DEAD_LETTERS;
        if self.letters == 0 || (bytes > self.bytes && !is_first) {
            return false;
        }
        self.letters -= 1;
        self.bytes = self.bytes.saturating_sub(bytes);
        true
    }
}
