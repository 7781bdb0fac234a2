//! Looks at queues from their very beginning, past the marks at which claims begin, in case
//! the word that should have lowered a mark was lost.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::{jittered, pause, report};
use crate::engine::Engine;
use crate::engine::marks::Place;
use crate::error::Error;
use crate::store::DEFAULT_NAMESPACE;
use crate::store::ready::find_heads_of_queues;

const INTERVAL: Duration = Duration::from_secs(5);

/// How many queues one statement looks at.
const QUEUES_PER_STATEMENT: usize = 1_000;

/// Lowers every mark that is behind its queue's head, and wakes a waiter for it; answers how
/// many there were.
pub async fn run_once(engine: &Engine) -> Result<usize, Error> {
    let mut found = 0;
    let marked = engine.marks.all();
    for queues in marked.chunks(QUEUES_PER_STATEMENT) {
        let mut conn = engine.database.connection().await?;
        for head in find_heads_of_queues(&mut conn, DEFAULT_NAMESPACE, queues).await? {
            let place = Place { rank: head.rank, seq: head.seq };
            if engine.marks.of(std::slice::from_ref(&head.queue))[0] > place {
                engine.marks.lower(&head.queue, place);
                engine.hub.wake_one(&[head.queue]);
                found += 1;
            }
        }
    }
    Ok(found)
}

/// Repeats until the server stops.
pub async fn run(engine: Engine, shutdown: CancellationToken) {
    while pause(jittered(INTERVAL), &shutdown).await {
        if let Err(error) = run_once(&engine).await {
            report("stragglers", &error);
        }
    }
}
