//! The batchers of this engine: which there are, and how much each may have at the database.
//!
//! Workers' and publishers' batches share a limit on batches of `--batches-at-once`. Outcomes of pushes
//! have a batcher and a limit on batches of their own: thousands of pushes of one event can end within a
//! second, and every one that is given up copies its event. They are recorded in small batches,
//! one after the other, and never stand in front of a worker's settlement. Neither does what
//! attempts say of their endpoints.

use std::future::Future;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::FutureExt;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;

use crate::error::Error;
use crate::store::connection::database::{Database, PooledConnection};

use crate::engine::batching::deadline::{WithDeadline, Work};
use crate::engine::batching::{Answers, BatchLimiter, Batcher, BatcherSettings, ConnectionSource, split};
use crate::engine::claim::{ClaimCall, ClaimedBatch};
use crate::engine::publish::matching::{MatchedPublication, Publishing};
use crate::engine::push::endpoint_notes::QueuedNote;
use crate::engine::push::yielding::{PushBatchLoad, PushPause};
use crate::engine::settle::{SettleRequest, SettleResults};
use crate::engine::{Engine, EngineParts, EngineSettings, stopping};

/// How many rows one batched statement takes at most.
const MAX_BATCH_ROWS: usize = 500;

/// Outcomes of pushes that one batch takes at most. Each may become a dead letter.
const PUSH_OUTCOMES: usize = 100;

/// Notes about endpoints that one batch takes at most. Each may open or close a breaker, of which up
/// to a hundred subscribers are told.
const ENDPOINT_NOTES: usize = 100;

/// Notes about endpoints that may wait. They are no requests that could be answered 429, so
/// `--max-queued` is not meant; there are never more than attempts under way or unrecorded.
const ENDPOINT_NOTES_QUEUED: usize = 10_000;

/// Bytes that count like one more row of a batched statement, so that a batch has at most
/// [`MAX_BATCH_ROWS`] times as many, or is a single call.
const BYTES_PER_ROW: usize = 8 * 1024;

/// A batch that waits for its turn for longer goes all the same.
const SLOW_BATCH: Duration = Duration::from_millis(10);

/// The same for outcomes of pushes. Two batches at once would mostly wait for each other, for the
/// row that counts the pushes of their event; only one that is held up is not waited for.
const SLOW_PUSH_BATCH: Duration = Duration::from_millis(500);

/// The queues in front of the hot verbs.
pub(crate) struct Batchers {
    pub publish: Batcher<MatchedPublication, Publishing>,
    pub claim: Batcher<ClaimCall, ClaimedBatch>,
    pub settle: Batcher<SettleRequest, SettleResults>,
    pub settle_pushes: Batcher<SettleRequest, SettleResults>,
    pub endpoint_notes: Batcher<QueuedNote, ()>,
}

/// How many calls of each verb wait to be taken to the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "named like the verbs")]
pub struct Queued {
    pub publish: usize,
    pub claim: usize,
    pub settle: usize,
    pub settle_pushes: usize,
}

impl Batchers {
    /// A batcher must not keep the engine alive, or neither would ever end.
    pub fn open(
        engine: &Weak<EngineParts>,
        runtime: &Handle,
        database: &Database,
        settings: &EngineSettings,
        pause: Arc<PushPause>,
    ) -> Self {
        let opening = Opening { engine, runtime };
        let limiter = limiter_of(database, settings.batches_at_once, None);
        let shape = BatcherSettings {
            name: "publish",
            capacity: settings.max_queued,
            width: 2,
            patience: SLOW_BATCH,
            max_weight: MAX_BATCH_ROWS,
        };
        let push_shape =
            BatcherSettings { name: "settle_pushes", patience: SLOW_PUSH_BATCH, max_weight: PUSH_OUTCOMES, ..shape };
        // One batch at a time: a success must not overtake the failures before it.
        let notes_shape = BatcherSettings {
            name: "endpoint_notes",
            capacity: ENDPOINT_NOTES_QUEUED,
            width: 1,
            max_weight: ENDPOINT_NOTES,
            ..push_shape
        };
        Batchers {
            publish: opening.batcher(shape, &limiter, |engine, calls| async move {
                split(calls, &|calls: Vec<_>| publish_batch(&engine, calls)).await
            }),
            // Two claims at once would fight for the same head.
            claim: opening.batcher(
                BatcherSettings { name: "claim", width: 1, ..shape },
                &limiter,
                |engine, calls| async move { engine.claim_batch(calls).await },
            ),
            settle: opening.batcher(
                BatcherSettings { name: "settle", ..shape },
                &limiter,
                |engine, calls| async move { split(calls, &|calls: Vec<_>| settle_batch(&engine, calls)).await },
            ),
            settle_pushes: opening.batcher(
                push_shape,
                &limiter_of(database, 1, Some(pause)),
                |engine, calls| async move {
                    let load = PushBatchLoad::of(&calls);
                    let answers = split(calls, &|calls: Vec<_>| settle_batch(&engine, calls)).await;
                    engine.pause_push_outcomes(load);
                    answers
                },
            ),
            endpoint_notes: opening.batcher(notes_shape, &limiter_of(database, 1, None), |engine, calls| async move {
                engine.run_note_batch(calls).await
            }),
        }
    }

    /// Returns whether workers or publishers are at the database, or wait for it.
    pub fn have_workers(&self) -> bool {
        self.settle.is_busy() || self.claim.is_busy() || self.publish.is_busy()
    }

    pub fn queued(&self) -> Queued {
        Queued {
            publish: self.publish.queued(),
            claim: self.claim.queued(),
            settle: self.settle.queued(),
            settle_pushes: self.settle_pushes.queued(),
        }
    }
}

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
    Arc::new(BatchLimiter { permits: Arc::new(Semaphore::new(batches_at_once)), connect })
}

async fn publish_batch(
    engine: &Engine,
    calls: Vec<WithDeadline<MatchedPublication>>,
) -> Result<Answers<Publishing>, Error> {
    engine.publish_batch(&calls).await
}

async fn settle_batch(
    engine: &Engine,
    calls: Vec<WithDeadline<SettleRequest>>,
) -> Result<Answers<SettleResults>, Error> {
    engine.settle_batch(&calls).await
}

/// What the batchers have in common.
struct Opening<'a> {
    engine: &'a Weak<EngineParts>,
    runtime: &'a Handle,
}

impl Opening<'_> {
    /// A batcher in which the engine carries out one verb, as long as there is an engine.
    fn batcher<C, A, Fut>(
        &self,
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
                    Some(engine) => Work::on_batch(connection).run(verb(engine, calls)).await,
                    None => calls.iter().map(|_| Err(stopping())).collect(),
                }
            }
        })
    }
}

/// Returns what a call of `rows` rows with `bytes` bytes counts among those of a batch.
pub(crate) fn weight(rows: usize, bytes: usize) -> usize {
    rows.max(bytes / BYTES_PER_ROW)
}
