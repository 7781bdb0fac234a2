//! Events that are not accepted because of their type.

use super::schema::Mistake;
use crate::domain::ids::EventId;
use crate::domain::invalid::Invalid;

/// A new event that is not accepted, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejection {
    /// The position of the event among those that were published together.
    pub index: usize,
    /// The fields of the event.
    pub errors: Vec<Invalid>,
}

/// What a new schema does to the latest events of its type.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RecentEvents {
    /// The number of events that were checked.
    pub checked: usize,
    /// The number of those that the schema rejects.
    pub rejected: usize,
    /// Some of those that it rejects, the latest first.
    pub rejections: Vec<RecentRejection>,
}

/// A stored event that a new schema rejects, and why. The reasons contain nothing of its payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecentRejection {
    pub event_id: EventId,
    pub errors: Vec<Invalid>,
}

impl RecentRejection {
    pub(crate) fn new(event_id: EventId, mistakes: &[Mistake]) -> Self {
        RecentRejection { event_id, errors: mistakes.iter().map(Mistake::for_stranger).collect() }
    }
}
