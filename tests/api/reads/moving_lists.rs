//! Lists while rows move: a client that follows cursors gets what stands still exactly once.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use serde_json::{Value, json};
use waybill::background::retention::events::run_once;
use waybill::domain::retention::Retention;

use crate::retention::old_events;
use crate::support::{App, database};

/// The number of events that stand still in each state.
const STILL: usize = 9;

/// The number of old events before all others, which are removed meanwhile.
const OLD: usize = 5_000;

/// The number of moves during which the lists are read, at least, and at which movers rest: a list has to end.
const MOVES: usize = 100;
const MOST_MOVES: usize = 3_000;

/// The states in which events stand still, in the order of their tags `kind-0` to `kind-4`.
const STATES: [&str; 5] = ["PENDING", "PROCESSING", "COMPLETED", "FAILED", "CANCELLED"];

/// A list, and the ids in it that stand still.
struct Still {
    list: String,
    ids: Vec<i64>,
}

/// Publishes events between which others move, and brings them into each state. Returns the ids by state.
async fn stand_still(app: &App) -> [Vec<i64>; 5] {
    let mut by_state: [Vec<i64>; 5] = Default::default();
    for _ in 0..STILL {
        publish_movers(app, 3).await;
        for (kind, ids) in by_state.iter_mut().enumerate() {
            ids.push(publish_still(app, kind).await);
        }
    }
    by_state
}

async fn publish_still(app: &App, kind: usize) -> i64 {
    let event = json!({
        "title": "a job", "tags": format!("still,kind-{kind}"), "event_type": "job.still", "correlation_id": "still",
        // Only what is never claimed: others would wait for their turn.
        "ordering_key": if kind == 0 { json!("still") } else { Value::Null },
    });
    let id = app.publish(event).await;
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
    id
}

/// Returns the lists of each field, and of two fields, with what stands still in them.
async fn lists_of_events(app: &App, by_state: &[Vec<i64>; 5]) -> Vec<Still> {
    let mut all = by_state.concat();
    all.sort_unstable();
    let since = app.event(all[0]).await["created_at"].as_str().expect("a time").to_owned();
    let until = time_of_new_event(app).await;
    let still = |filter: &str, ids: &[i64]| Still { list: format!("/events?{filter}&limit=4"), ids: ids.to_vec() };
    let mut lists = vec![
        still("tags=still", &all),
        still("event_type=job.still", &all),
        still("correlation_id=still", &all),
        still("ordering_key=still", &by_state[0]),
        still("worker_id=still:1", &by_state[1]),
        still(&format!("since={since}&until={until}"), &all),
        still("worker_id=still:1&tags=still", &by_state[1]),
        still("worker_id=still:1&status=COMPLETED", &by_state[2]),
    ];
    for (status, ids) in STATES.iter().zip(by_state) {
        // Others move into this list, and it has to end.
        lists.push(Still { list: format!("/events?status={status}&limit=20"), ids: ids.clone() });
        lists.push(still(&format!("status={status}&tags=still"), ids));
        lists.push(still(&format!("status={status}&event_type=job.still"), ids));
        lists.push(still(&format!("status={status}&since={since}&until={until}"), ids));
    }
    lists
}

/// Returns lists of log entries, which stand still behind those that are added.
async fn lists_of_entries(app: &App) -> Vec<Still> {
    let until = time_of_new_event(app).await;
    let mut lists = Vec::new();
    for filter in ["worker_id=still:1", "worker_id=still:1&action=PICKED", "action=FAILED&worker_id=still:1"] {
        let list = format!("/logs?{filter}&limit=4");
        let ids = app.walk_ids(&list).await.concat();
        lists.push(Still { list, ids });
    }
    let list = format!("/logs?until={until}&limit=20");
    let ids = app.walk_ids(&list).await.concat();
    lists.push(Still { list, ids });
    lists
}

/// Publishes an event of which nothing else is known, and returns its time, which is later than all before it.
async fn time_of_new_event(app: &App) -> String {
    let id = app.publish(json!({"title": "a job", "tags": "last"})).await;
    app.event(id).await["created_at"].as_str().expect("a time").to_owned()
}

async fn publish_movers(app: &App, count: usize) {
    let movers =
        vec![json!({"title": "a job", "tags": "moving,other", "backoff": {"strategy": "fixed", "seconds": 0}}); count];
    app.post("/events/batch", &json!({"events": movers})).await.expect(201);
}

/// Claims, releases, fails and completes events, and publishes one for each that leaves.
async fn move_events(app: &App, moves: &AtomicUsize, done: &AtomicBool) {
    for round in 0.. {
        if done.load(Ordering::Relaxed) || moves.load(Ordering::Relaxed) >= MOST_MOVES {
            return;
        }
        let Some(event) = app.claim("moving", "mover:1").await else {
            publish_movers(app, 1).await;
            continue;
        };
        let id = event["id"].as_i64().expect("an id");
        let body = json!({"worker_id": "mover:1"});
        let verb = ["release", "fail", "complete", "fail", "release"][round % 5];
        let reply = app.post(&format!("/events/{id}/{verb}"), &body).await;
        moves.fetch_add(usize::from(reply.status == 200), Ordering::Relaxed);
        if verb == "complete" {
            publish_movers(app, 1).await;
        }
    }
}

/// Removes the old events. Returns their number.
async fn remove_events(app: &App) -> usize {
    run_once(app.engine(), Retention::Seconds(3_600)).await.expect("a round")["events"]
}

/// Follows a list to its end and checks that it has what stands still, each once and in order.
async fn check(app: &App, still: &Still, order: &str) {
    let Still { list, ids } = still;
    let mut found = app.walk_ids(&format!("{list}&order={order}")).await.concat();
    if order == "desc" {
        found.reverse();
    }
    assert!(found.is_sorted(), "{list}, {order}, is not in order: {found:?}");
    let distinct: BTreeSet<i64> = found.iter().copied().collect();
    assert_eq!(distinct.len(), found.len(), "{list}, {order}, repeats: {found:?}");
    let seen: Vec<i64> = ids.iter().copied().filter(|id| distinct.contains(id)).collect();
    assert_eq!(&seen, ids, "{list}, {order}, skips");
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_neither_repeat_nor_skip_what_stands_still_while_other_events_move_and_leave() {
    let app = App::start().await;
    database::execute(&app.url, &old_events(OLD)).await;
    let by_state = stand_still(&app).await;
    let mut lists = lists_of_events(&app, &by_state).await;
    lists.extend(lists_of_entries(&app).await);
    assert!(lists.iter().all(|still| still.ids.len() >= STILL), "each list has what stands still");

    let (done, moves) = (AtomicBool::new(false), AtomicUsize::new(0));
    let read = async {
        let mut rounds = 0;
        while rounds < 2 || (moves.load(Ordering::Relaxed) < MOVES && rounds < 50) {
            for still in &lists {
                for order in ["asc", "desc"] {
                    check(&app, still, order).await;
                }
            }
            rounds += 1;
        }
        done.store(true, Ordering::Relaxed);
        rounds
    };
    let (rounds, (), (), removed) =
        tokio::join!(read, move_events(&app, &moves, &done), move_events(&app, &moves, &done), remove_events(&app));
    let moves = moves.into_inner();
    println!("{moves} moves and {removed} removals during {rounds} rounds");
    assert_eq!(removed, OLD);
    assert!(moves >= MOVES, "only {moves} events moved while the lists were read {rounds} times");
}
