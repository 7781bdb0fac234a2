//! What an administrator allows a namespace or a key at most. Nothing is limited by default.

use serde::{Deserialize, Serialize};

use super::input::RawFields;

/// The maximum of `publishes_per_second` and of `publish_burst`.
pub(crate) const MAX_RATE: u32 = 1_000_000;

/// The maximum of limits that count.
const MAX_COUNT: i64 = 9_007_199_254_740_991;

/// How many events may be published: on average per second, and at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PublishRate {
    pub per_second: u32,
    pub burst: u32,
}

impl PublishRate {
    /// Returns a rate. Without a burst, the events of one second may come at once.
    pub(crate) fn of(per_second: Option<u32>, burst: Option<u32>) -> Option<Self> {
        let per_second = per_second.filter(|rate| *rate > 0)?;
        Some(PublishRate { per_second, burst: burst.filter(|burst| *burst > 0).unwrap_or(per_second) })
    }

    /// Returns the time in which a burst that was used up comes back, in whole seconds, rounded up.
    pub(crate) fn burst_seconds(self) -> u32 {
        self.burst.div_ceil(self.per_second.max(1))
    }

    /// Reads the two fields of a rate.
    pub(crate) fn read(fields: &mut RawFields<'_>) -> (Option<u32>, Option<u32>) {
        let is_given = fields.is_given("publishes_per_second");
        let per_second = fields.integer("publishes_per_second", 1..=MAX_RATE);
        let burst = fields.integer("publish_burst", 1..=MAX_RATE);
        if burst.is_some() && !is_given {
            fields.refuse("publish_burst", "must not be given without publishes_per_second");
        }
        (per_second, burst)
    }
}

/// What an update says about one number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    Keep,
    Remove,
    Set(u32),
}

impl Change {
    fn read(fields: &mut RawFields<'_>, name: &str) -> Self {
        let is_given = fields.contains(name);
        match fields.integer(name, 1..=MAX_RATE) {
            Some(number) => Change::Set(number),
            None if is_given => Change::Remove,
            None => Change::Keep,
        }
    }

    fn apply(self, present: Option<u32>) -> Option<u32> {
        match self {
            Change::Keep => present,
            Change::Remove => None,
            Change::Set(number) => Some(number),
        }
    }
}

/// A change of a rate. A field that is left out stays, and `null` removes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateChange {
    per_second: Change,
    burst: Change,
}

impl RateChange {
    /// Reads the two fields of a rate.
    pub(crate) fn read(fields: &mut RawFields<'_>) -> Self {
        RateChange {
            per_second: Change::read(fields, "publishes_per_second"),
            burst: Change::read(fields, "publish_burst"),
        }
    }

    /// Returns the two numbers after the change, or `None` if it sets a burst where there is no rate. A rate that is
    /// removed takes its burst along.
    pub(crate) fn apply(self, (per_second, burst): (Option<u32>, Option<u32>)) -> Option<(Option<u32>, Option<u32>)> {
        match (self.per_second.apply(per_second), self.burst) {
            (None, Change::Set(_)) => None,
            (None, _) => Some((None, None)),
            (per_second, change) => Some((per_second, change.apply(burst))),
        }
    }
}

/// The limits of a namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NamespaceLimits {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub publishes_per_second: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub publish_burst: Option<u32>,
    /// Of events that wait for a worker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting_events: Option<i64>,
    /// Of the payloads of all events that are stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stored_bytes: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subscriptions: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sources: Option<i64>,
}

impl NamespaceLimits {
    /// Reads limits. One that is left out is off.
    #[expect(clippy::unnecessary_wraps, reason = "the form of all readers of objects")]
    pub(crate) fn read(fields: &mut RawFields<'_>) -> Option<Self> {
        let (publishes_per_second, publish_burst) = PublishRate::read(fields);
        Some(NamespaceLimits {
            publishes_per_second,
            publish_burst,
            waiting_events: fields.integer("waiting_events", 1..=MAX_COUNT),
            stored_bytes: fields.integer("stored_bytes", 1..=MAX_COUNT),
            subscriptions: fields.integer("subscriptions", 0..=MAX_COUNT),
            sources: fields.integer("sources", 0..=MAX_COUNT),
        })
    }

    pub(crate) fn rate(&self) -> Option<PublishRate> {
        PublishRate::of(self.publishes_per_second, self.publish_burst)
    }

    /// Returns whether a publish has to be checked.
    pub(crate) fn concern_publishes(&self) -> bool {
        self.publishes_per_second.is_some() || self.waiting_events.is_some() || self.stored_bytes.is_some()
    }
}

/// A limit that can be exceeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitName {
    PublishesPerSecond,
    WaitingEvents,
    StoredBytes,
    Subscriptions,
    Sources,
}

impl LimitName {
    pub fn as_str(self) -> &'static str {
        match self {
            LimitName::PublishesPerSecond => "publishes_per_second",
            LimitName::WaitingEvents => "waiting_events",
            LimitName::StoredBytes => "stored_bytes",
            LimitName::Subscriptions => "subscriptions",
            LimitName::Sources => "sources",
        }
    }
}

/// Whose limit it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitOwner {
    Namespace,
    Key,
}

impl LimitOwner {
    pub fn as_str(self) -> &'static str {
        match self {
            LimitOwner::Namespace => "namespace",
            LimitOwner::Key => "key",
        }
    }
}

/// A limit that a request would exceed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the limit {} of the {} is reached; try again in {retry_after} s", .limit.as_str(), .owner.as_str())]
pub struct LimitExceeded {
    pub limit: LimitName,
    pub owner: LimitOwner,
    /// In seconds.
    pub retry_after: u64,
}

impl LimitExceeded {
    /// Returns that a limit of the namespace is reached.
    pub(crate) fn of_namespace(limit: LimitName, retry_after: u64) -> Self {
        LimitExceeded { limit, owner: LimitOwner::Namespace, retry_after }
    }
}
