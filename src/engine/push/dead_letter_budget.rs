//! The limit on dead letters that one transaction writes.
//!
//! A dead letter copies its event. Thousands of pushes of one event, with a payload of 1 MB each, may
//! end at the same time. A transaction that wrote all their dead letters would hold its row locks for
//! a long time. One of these locks is on the row that counts the event's pushes, and every transaction
//! that ends another push of the event waits for it.

use crate::store::tables::deliveries::Loaded;

/// The maximum number of dead letters per transaction.
const DEAD_LETTERS: usize = 100;

/// The maximum number of payload bytes that a transaction copies. A single dead letter may exceed it.
const COPIED_BYTES: usize = 4 * 1024 * 1024;

/// The dead letters that a transaction may still write.
#[derive(Debug)]
pub(crate) struct DeadLetterBudget {
    remaining: usize,
    bytes: usize,
}

impl DeadLetterBudget {
    pub(crate) fn new() -> Self {
        DeadLetterBudget { remaining: DEAD_LETTERS, bytes: COPIED_BYTES }
    }

    /// Returns whether this transaction may fail a delivery permanently, and deducts its dead letter
    /// from the budget. Pulled work leaves no dead letter and is always admitted.
    pub(crate) fn admits(&mut self, loaded: &Loaded) -> bool {
        if loaded.delivery.subscription_id.is_none() {
            return true;
        }
        let bytes = loaded.large_payload_bytes.map_or(0, |bytes| usize::try_from(bytes).unwrap_or(0));
        let is_first = self.remaining == DEAD_LETTERS;
        if self.remaining == 0 || (bytes > self.bytes && !is_first) {
            return false;
        }
        self.remaining -= 1;
        self.bytes = self.bytes.saturating_sub(bytes);
        true
    }
}
