//! The batchers of the engine, and the number of batches that each may run at once.
//!
//! The batches of workers and publishers share one limiter, which admits `--batches-at-once` of them.
//! Outcomes of pushes have a batcher and a limiter of their own: thousands of pushes of one event can end
//! within a second, and each abandoned push copies its event to a dead letter. They are recorded in small
//! batches, one after the other, and never delay the settlement of a worker. Endpoint notes have their own
//! batcher and limiter for the same reason.

use std::future::Future;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use tokio::runtime::Handle;

use crate::metrics::lanes::Lane;
use crate::store::connection::database::{Database, PooledConnection};

use crate::engine::batching::deadline::{WithDeadline, Work};
use crate::engine::batching::{
    Answers, BatchLimiter, Batcher, BatcherSettings, ConnectionSource, split, split_conflicts,
};
use crate::engine::claim::{ClaimCall, ClaimedBatch};
use crate::engine::publish::matching::{MatchedPublication, Publishing};
use crate::engine::push::endpoint_notes::QueuedNote;
use crate::engine::push::yielding::{PushBatchLoad, PushPause};
use crate::engine::settle::{SettleRequest, SettleResults};
use crate::engine::{Engine, EngineParts, EngineSettings, stopping};

/// The maximum number of rows of a batched statement.
const MAX_BATCH_ROWS: usize = 500;

/// The maximum number of push outcomes in a batch. Each may write a dead letter.
const PUSH_OUTCOMES: usize = 100;

/// The maximum number of endpoint notes in a batch. Each may open or close a breaker, and then up to 100
/// subscriptions receive a notice.
const ENDPOINT_NOTES: usize = 100;

/// The maximum number of endpoint notes that wait. `--max-queued` does not apply, because notes are not
/// requests that could be answered with 429. There are never more notes than attempts that are in flight
/// or not yet recorded.
const ENDPOINT_NOTES_QUEUED: usize = 10_000;

/// The number of bytes that weigh as much as one row. This limits a batch to [`MAX_BATCH_ROWS`] times as
/// many bytes, unless it is a single call.
const BYTES_PER_ROW: usize = 8 * 1024;

/// The number of batches at once up to which small batches of publishers do not overlap: with so few processors, a larger
/// batch is better than two.
const FEW_BATCHES: usize = 2;

/// The time that a batch waits for its permit before it runs without one.
const SLOW_BATCH: Duration = Duration::from_millis(10);

/// The same time for push outcomes. It is longer, because two batches at once would mostly wait for each
/// other: both lock the row that counts the pushes of their event. Only a batch that is stuck is overtaken.
const SLOW_PUSH_BATCH: Duration = Duration::from_millis(500);

/// The batchers of the frequent verbs.
pub(crate) struct Batchers {
    pub publish: Batcher<MatchedPublication, Publishing>,
    pub claim: Batcher<ClaimCall, ClaimedBatch>,
    pub settle: Batcher<SettleRequest, SettleResults>,
    pub settle_pushes: Batcher<SettleRequest, SettleResults>,
    pub endpoint_notes: Batcher<QueuedNote, ()>,
}

/// The number of calls that wait for the database, by verb.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Queued {
    pub publish: usize,
    pub claim: usize,
    pub settle: usize,
    pub settle_pushes: usize,
    pub endpoint_notes: usize,
}

impl Batchers {
    /// Opens all batchers. They hold the engine weakly: the engine owns them, and a strong reference would
    /// keep both alive forever.
    pub(crate) fn open(
        engine: &Weak<EngineParts>,
        runtime: &Handle,
        database: &Database,
        settings: &EngineSettings,
        pause: Arc<PushPause>,
    ) -> Self {
        let context = BatcherContext { engine, runtime };
        let limiter = limiter_of(database, settings.batches_at_once, None);
        let shape = BatcherSettings {
            name: Lane::Publish.as_str(),
            capacity: settings.max_queued,
            width: 2,
            avoids_overlap: false,
            has_express: true,
            patience: SLOW_BATCH,
            max_weight: MAX_BATCH_ROWS,
        };
        let push_shape = BatcherSettings {
            name: Lane::SettlePushes.as_str(),
            has_express: false,
            patience: SLOW_PUSH_BATCH,
            max_weight: PUSH_OUTCOMES,
            ..shape
        };
        // The width is 1, because a success must not overtake the failures before it.
        let notes_shape = BatcherSettings {
            name: Lane::EndpointNotes.as_str(),
            capacity: ENDPOINT_NOTES_QUEUED,
            width: 1,
            max_weight: ENDPOINT_NOTES,
            ..push_shape
        };
        Batchers {
            publish: context.batcher(
                Lane::Publish,
                BatcherSettings { avoids_overlap: settings.batches_at_once <= FEW_BATCHES, ..shape },
                &limiter,
                |engine, calls| async move { split_conflicts(calls, &|calls| engine.publish_calls(calls)).await },
            ),
            // The width is 1, because two claims at once would compete for the same head of a queue. An express batch
            // beside it has other namespaces, and therefore other queues.
            claim: context.batcher(
                Lane::Claim,
                BatcherSettings { name: Lane::Claim.as_str(), width: 1, ..shape },
                &limiter,
                |engine, calls| async move { engine.claim_batch(calls).await },
            ),
            settle: context.batcher(
                Lane::Settle,
                BatcherSettings { name: Lane::Settle.as_str(), ..shape },
                &limiter,
                |engine, calls| async move { split(calls, &|calls| engine.settle_batch(calls)).await },
            ),
            settle_pushes: context.batcher(
                Lane::SettlePushes,
                push_shape,
                &limiter_of(database, 1, Some(pause)),
                |engine, calls| async move {
                    let load = PushBatchLoad::of(&calls);
                    let answers = split(calls, &|calls| engine.settle_batch(calls)).await;
                    engine.pause_push_outcomes(load);
                    answers
                },
            ),
            endpoint_notes: context.batcher(
                Lane::EndpointNotes,
                notes_shape,
                &limiter_of(database, 1, None),
                |engine, calls| async move { engine.run_note_batch(calls).await },
            ),
        }
    }

    /// Returns whether workers or publishers use the database or wait for it.
    pub(crate) fn have_workers(&self) -> bool {
        self.settle.is_busy() || self.claim.is_busy() || self.publish.is_busy()
    }

    pub(crate) fn queued(&self) -> Queued {
        Queued {
            publish: self.publish.queued(),
            claim: self.claim.queued(),
            settle: self.settle.queued(),
            settle_pushes: self.settle_pushes.queued(),
            endpoint_notes: self.endpoint_notes.queued(),
        }
    }
}

/// Returns a limiter that admits `batches_at_once` batches. If there is a `pause`, each batch waits for its
/// end before it takes a connection.
fn limiter_of(
    database: &Database,
    batches_at_once: usize,
    pause: Option<Arc<PushPause>>,
) -> Arc<BatchLimiter<PooledConnection>> {
    let database = database.clone();
    let connect: Box<ConnectionSource<PooledConnection>> = Box::new(move || {
        let (database, pause) = (database.clone(), pause.clone());
        async move {
            if let Some(pause) = pause {
                pause.over().await;
            }
            database.connection().await
        }
        .boxed()
    });
    BatchLimiter::new(batches_at_once, connect)
}

/// What all batchers are opened with.
struct BatcherContext<'a> {
    engine: &'a Weak<EngineParts>,
    runtime: &'a Handle,
}

impl BatcherContext<'_> {
    /// Opens a batcher that runs `verb`. Once the engine is dropped, it refuses all calls.
    fn batcher<C, A, Fut>(
        &self,
        lane: Lane,
        shape: BatcherSettings,
        limiter: &Arc<BatchLimiter<PooledConnection>>,
        verb: fn(Engine, Vec<WithDeadline<C>>) -> Fut,
    ) -> Batcher<C, A>
    where
        C: Send + Sync + 'static,
        A: Send + 'static,
        Fut: Future<Output = Answers<A>> + Send + 'static,
    {
        let engine = self.engine.clone();
        Batcher::open(self.runtime, shape, limiter.clone(), move |calls, connection| {
            let engine = engine.upgrade().map(Engine);
            async move {
                match engine {
                    Some(engine) => {
                        let (size, started_at) = (calls.len(), Instant::now());
                        let answers = Work::on_batch(connection).run(verb(engine.clone(), calls)).await;
                        engine.metrics().lanes.observe(lane, size, started_at.elapsed().as_secs_f64());
                        answers
                    }
                    None => calls.iter().map(|_| Err(stopping())).collect(),
                }
            }
        })
    }
}

/// Returns the weight of a call of `rows` rows with `bytes` bytes, in rows.
pub(crate) fn weight(rows: usize, bytes: usize) -> usize {
    rows.max(bytes / BYTES_PER_ROW)
}
