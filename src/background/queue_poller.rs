//! The fallback of long polling and of pushing: scans the queues that workers or the dispatcher wait
//! for, in one statement for many queues. Without `NOTIFY` (for example behind a proxy that does not
//! support it) this alone finds new work, with a delay of up to one interval.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::Service;
use crate::engine::Engine;
use crate::error::Error;
use crate::store::tables::ready::find_busy_queues;

/// The maximum number of queues that one statement reads.
const QUEUES_PER_STATEMENT: usize = 5_000;

/// Wakes one waiter, or the dispatcher, for each awaited queue that is not empty. Returns the number of
/// those queues.
pub(crate) async fn run_once(engine: &Engine) -> Result<usize, Error> {
    let mut awaited = engine.hub().awaited_queues();
    if engine.dispatch_signal().has_dispatcher() {
        engine.refresh_subscribers().await?;
        awaited.extend(engine.subscription_cache().queues());
    }
    let mut busy = 0;
    for queues in awaited.chunks(QUEUES_PER_STATEMENT) {
        let mut conn = engine.database().connection().await?;
        let from: Vec<(i16, i64)> =
            engine.low_water_marks().of(queues).into_iter().map(|mark| (mark.rank, mark.seq)).collect();
        for queue in find_busy_queues(&mut conn, queues, &from).await? {
            engine.wake_for(&queue, 1);
            busy += 1;
        }
    }
    Ok(busy)
}

/// Runs rounds until the server stops.
pub(crate) async fn run(engine: Engine, interval: Duration, shutdown: CancellationToken) {
    let service = Service::every("queue poller", interval);
    service.run(engine, shutdown, |engine| async move { run_once(&engine).await.map(|_| None) }).await;
}
