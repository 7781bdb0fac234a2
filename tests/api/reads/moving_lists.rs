//! Lists while rows move: a client that follows cursors gets what stands still exactly once.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;

use crate::support::App;

/// The number of events that stand still in each state.
const STILL: usize = 9;

/// Events that stand still in one state, and the list that has them.
struct Still {
    list: &'static str,
    ids: Vec<i64>,
}

/// Publishes events between which others move, and brings them into each state.
async fn stand_still(app: &App) -> Vec<Still> {
    let mut still: Vec<Still> =
        ["status=PENDING", "status=PROCESSING", "status=COMPLETED", "status=FAILED", "status=CANCELLED", "tags=still"]
            .map(|list| Still { list, ids: Vec::new() })
            .into();
    for _ in 0..STILL {
        publish_movers(app, 3).await;
        for kind in 0..5 {
            let id = app.publish(json!({"title": "a job", "tags": format!("still,kind-{kind}")})).await;
            still[5].ids.push(id);
            still[kind].ids.push(id);
            if kind == 4 {
                app.post_empty(&format!("/events/{id}/cancel")).await.expect(200);
            } else if kind > 0 {
                app.claim(&format!("kind-{kind}"), "still:1").await.expect("an event");
            }
            match kind {
                2 => drop(app.complete(id, "still:1").await.expect(200)),
                3 => {
                    let body = json!({"worker_id": "still:1", "retryable": false});
                    app.post(&format!("/events/{id}/fail"), &body).await.expect(400);
                }
                _ => {}
            }
        }
    }
    let held = still[1].ids.clone();
    still.push(Still { list: "worker_id=still:1", ids: held });
    still
}

async fn publish_movers(app: &App, count: usize) {
    let movers =
        vec![json!({"title": "a job", "tags": "moving,other", "backoff": {"strategy": "fixed", "seconds": 0}}); count];
    app.post("/events/batch", &json!({"events": movers})).await.expect(201);
}

/// Claims, releases, fails, completes and cancels events, and publishes new ones.
async fn move_events(app: &App, done: &AtomicBool) {
    for round in 0.. {
        if done.load(Ordering::Relaxed) {
            return;
        }
        publish_movers(app, 1).await;
        let Some(event) = app.claim("moving", "mover:1").await else { continue };
        let id = event["id"].as_i64().expect("an id");
        let body = json!({"worker_id": "mover:1"});
        let verb = ["release", "fail", "complete", "fail", "release"][round % 5];
        app.post(&format!("/events/{id}/{verb}"), &body).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_neither_repeat_nor_skip_what_stands_still_while_other_events_move() {
    let app = App::start().await;
    let still = stand_still(&app).await;
    let done = AtomicBool::new(false);
    let read = async {
        for round in 0..4 {
            for Still { list, ids } in &still {
                let order = ["asc", "desc"][round % 2];
                let found = app.walk_ids(&format!("/events?{list}&limit=4&order={order}")).await.concat();
                let distinct: BTreeSet<i64> = found.iter().copied().collect();
                assert_eq!(distinct.len(), found.len(), "{list} repeats an event: {found:?}");
                let seen: Vec<i64> = ids.iter().copied().filter(|id| distinct.contains(id)).collect();
                assert_eq!(&seen, ids, "{list} skips an event");
            }
        }
        done.store(true, Ordering::Relaxed);
    };
    tokio::join!(read, move_events(&app, &done), move_events(&app, &done));
}
