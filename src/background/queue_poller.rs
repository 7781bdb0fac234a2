//! The backstop of long polling and of pushing: looks whether anything lies in the queues that
//! somebody waits for, in one statement however many wait. Alone it suffices (behind a proxy
//! that does not carry `NOTIFY`), with the delay of its interval.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::Service;
use crate::engine::Engine;
use crate::error::Error;
use crate::store::tables::ready::find_busy_queues;

/// How many queues one statement asks about.
const QUEUES_PER_STATEMENT: usize = 5_000;

/// Wakes one waiter, or the dispatcher, for each awaited queue that holds something; answers how
/// many queues did.
pub async fn run_once(engine: &Engine) -> Result<usize, Error> {
    let mut awaited = engine.hub().awaited_queues();
    if engine.dispatch_signal().has_dispatcher() {
        engine.refresh_subscribers().await?;
        awaited.extend(engine.subscription_cache().queues());
    }
    let mut busy = 0;
    for queues in awaited.chunks(QUEUES_PER_STATEMENT) {
        let mut conn = engine.database().connection().await?;
        let from: Vec<(i16, i64)> = engine.marks().of(queues).into_iter().map(|mark| (mark.rank, mark.seq)).collect();
        for queue in find_busy_queues(&mut conn, &engine.scope(), queues, &from).await? {
            engine.wake_for(&queue, 1);
            busy += 1;
        }
    }
    Ok(busy)
}

/// Runs until the server stops.
pub async fn run(engine: Engine, interval: Duration, shutdown: CancellationToken) {
    let service = Service::every("queue poller", interval);
    service.run(engine, shutdown, |engine| async move { run_once(&engine).await.map(|_| None) }).await;
}
