//! Looks at queues, and at what waits for a moment, from their very beginning, past the marks
//! at which others begin, in case the word that should have lowered a mark was lost.
//!
//! That is the look which marks are there to avoid: while an old snapshot is held it gets
//! slower with everything that passes through. So it takes no more than a share of the time.

use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{Service, jittered};
use crate::engine::Engine;
use crate::engine::waiting::low_water_marks::QueuePosition;
use crate::engine::waiting::peer_notifier::Arrivals;
use crate::error::Error;

const INTERVAL: Duration = Duration::from_secs(5);

/// How many times as long as a round the pause after it is at least.
const REST: u32 = 50;

/// How many queues one statement looks at.
const QUEUES_PER_STATEMENT: usize = 1_000;

/// Lowers every mark that is behind its queue's head, and wakes a waiter for it; answers how
/// many there were.
pub async fn run_once(engine: &Engine) -> Result<usize, Error> {
    let mut found = 0;
    let marked = engine.marks().all();
    for queues in marked.chunks(QUEUES_PER_STATEMENT) {
        for head in engine.find_heads_of_queues(queues).await? {
            let position = QueuePosition { rank: head.rank, seq: head.seq };
            if engine.marks().of(std::slice::from_ref(&head.queue))[0] > position {
                engine.note_arrivals(&head.queue, Arrivals { first: position, count: 1 });
                found += 1;
            }
        }
    }
    engine.due_times().wait_for(&engine.find_earliest_times().await?);
    Ok(found)
}

/// Runs until the server stops.
pub async fn run(engine: Engine, shutdown: CancellationToken) {
    let service = Service::every("catch-up scan", INTERVAL);
    service
        .run(engine, shutdown, |engine| async move {
            let began = Instant::now();
            run_once(&engine).await?;
            Ok(Some(jittered(INTERVAL.max(began.elapsed() * REST))))
        })
        .await;
}
