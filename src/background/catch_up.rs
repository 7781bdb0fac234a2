//! The catch-up scan: reads every queue, and the deliveries that wait for a due time, from the very
//! beginning.
//!
//! Other scans begin at the low-water marks. If the notification that should have lowered a mark is
//! lost, they miss work, and this scan finds it. A scan from the beginning is what the marks avoid:
//! while another transaction holds an old snapshot, it gets slower with every row that passes through
//! the queue. It therefore uses only a small share of the time.

use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{Service, jittered};
use crate::engine::Engine;
use crate::engine::waiting::low_water_marks::QueuePosition;
use crate::engine::waiting::peer_notifier::Arrivals;
use crate::error::Error;

const INTERVAL: Duration = Duration::from_secs(5);

/// The pause after a round is at least this many times as long as the round.
const PAUSE_FACTOR: u32 = 50;

/// The maximum number of queues that one statement reads.
const QUEUES_PER_STATEMENT: usize = 1_000;

/// Lowers every low-water mark that is past the head of its queue, and wakes a waiter of that queue.
/// Returns the number of those marks.
pub(crate) async fn run_once(engine: &Engine) -> Result<usize, Error> {
    let mut lowered = 0;
    let all_queues = engine.low_water_marks().all();
    for queues in all_queues.chunks(QUEUES_PER_STATEMENT) {
        for head in engine.find_heads_of_queues(queues).await? {
            let position = QueuePosition { rank: head.rank, seq: head.seq };
            let queue = head.queue();
            if engine.low_water_marks().of(std::slice::from_ref(&queue))[0] > position {
                engine.note_arrivals(&queue, Arrivals { first: position, count: 1 });
                lowered += 1;
            }
        }
    }
    engine.due_times().wait_for(&engine.find_earliest_times().await?);
    Ok(lowered)
}

/// Runs rounds until the server stops.
pub(crate) async fn run(engine: Engine, shutdown: CancellationToken) {
    let service = Service::every("catch-up scan", INTERVAL);
    service
        .run(engine, shutdown, |engine| async move {
            let began = Instant::now();
            run_once(&engine).await?;
            Ok(Some(jittered(INTERVAL.max(began.elapsed() * PAUSE_FACTOR))))
        })
        .await;
}
