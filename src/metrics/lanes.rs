//! The batches of each verb: how large they are, and how long the database takes for them.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::histogram::Histogram;

/// The upper bounds of the buckets of durations, in seconds.
const SECONDS: [f64; 10] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 4.0];

/// The upper bounds of the buckets of sizes, in calls.
const CALLS: [f64; 8] = [1.0, 2.0, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0];

/// The verbs whose calls are batched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lane {
    Publish,
    Claim,
    Settle,
    SettlePushes,
    EndpointNotes,
}

impl Lane {
    const ALL: [Lane; 5] = [Lane::Publish, Lane::Claim, Lane::Settle, Lane::SettlePushes, Lane::EndpointNotes];

    /// Returns the name, in log lines and as a label value.
    pub fn as_str(self) -> &'static str {
        match self {
            Lane::Publish => "publish",
            Lane::Claim => "claim",
            Lane::Settle => "settle",
            Lane::SettlePushes => "settle_pushes",
            Lane::EndpointNotes => "endpoint_notes",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LaneLabel {
    lane: &'static str,
}

type ByLane<M> = Family<LaneLabel, M, fn() -> M>;

/// The metrics of all lanes.
#[derive(Debug)]
pub struct Lanes {
    durations: ByLane<Histogram>,
    sizes: ByLane<Histogram>,
    queued: Family<LaneLabel, Gauge>,
    /// In the order of [`Lane::ALL`].
    handles: [LaneHandles; Lane::ALL.len()],
}

#[derive(Debug)]
struct LaneHandles {
    duration: Histogram,
    size: Histogram,
    queued: Gauge,
}

impl Lanes {
    pub(super) fn new() -> Self {
        let durations = ByLane::new_with_constructor(|| Histogram::new(&SECONDS));
        let sizes = ByLane::new_with_constructor(|| Histogram::new(&CALLS));
        let queued = Family::<LaneLabel, Gauge>::default();
        let handles = Lane::ALL.map(|lane| {
            let label = LaneLabel { lane: lane.as_str() };
            LaneHandles {
                duration: durations.get_or_create_owned(&label),
                size: sizes.get_or_create_owned(&label),
                queued: queued.get_or_create_owned(&label),
            }
        });
        Lanes { durations, sizes, queued, handles }
    }

    #[rustfmt::skip]
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register("batch_duration_seconds", "Time that the database took for a batch of calls, with the commit", self.durations.clone());
        registry.register("batch_calls", "Calls in a batch", self.sizes.clone());
        registry.register("calls_queued", "Calls that wait for the next batch", self.queued.clone());
    }

    /// Records a batch that has ended.
    pub fn observe(&self, lane: Lane, calls: usize, seconds: f64) {
        let handles = &self.handles[lane as usize];
        handles.duration.observe(seconds);
        handles.size.observe(calls as f64);
    }

    pub fn set_queued(&self, lane: Lane, calls: usize) {
        self.handles[lane as usize].queued.set(calls as i64);
    }
}
