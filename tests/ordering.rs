//! Ordering keys: one event at a time, in publish order, whatever happens to the head.

use chrono::TimeDelta;
use serde_json::{Value, json};
use waybill::domain::ids::NamespaceId;
use waybill::store::tables::ordering::lock_keys;

use crate::support::work::{Claim, Naming, W1, W2, ids};
use crate::support::{App, database, ledger};

fn keyed(key: &str) -> Value {
    json!({"title": "a job", "tags": "a", "ordering_key": key})
}

fn keyed_with(key: &str, more: Value) -> Value {
    let mut event = keyed(key);
    event.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    event
}

/// Publishes three events of one key. Returns their ids.
async fn three_of(app: &App, key: &str) -> [i64; 3] {
    [app.publish(keyed(key)).await, app.publish(keyed(key)).await, app.publish(keyed(key)).await]
}

/// Claims the next event, and asserts that it is this one and that no other can be claimed.
async fn claim_only(app: &App, id: i64) -> Claim {
    let claim = app.claim_one("a", W1).await;
    assert_eq!(claim.event_id, id);
    assert!(app.claim("a", W2).await.is_none(), "another event of the key was handed out together with {id}");
    claim
}

/// Claims and completes everything that can be claimed. Returns the ids in that order.
async fn complete_all(app: &App) -> Vec<i64> {
    let mut done = Vec::new();
    while let Some(event) = app.claim("a", W1).await {
        let claim = Claim::of(&event);
        app.settle(&claim, "complete", Naming::Lease).await.expect(200);
        done.push(claim.event_id);
    }
    done
}

#[tokio::test(flavor = "multi_thread")]
async fn events_of_one_key_are_handed_out_one_at_a_time_in_publish_order() {
    let app = App::start().await;
    for id in three_of(&app, "k").await {
        let claim = claim_only(&app, id).await;
        app.settle(&claim, "complete", Naming::Lease).await.expect(200);
    }
    assert!(app.claim("a", W1).await.is_none());
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_claim_gets_one_event_of_a_key() {
    let app = App::start().await;
    let first = three_of(&app, "k").await;
    let other = three_of(&app, "l").await;
    let free = app.publish_tagged("a").await;
    assert_eq!(ids(&app.claim_batch("a", W1, 10).await), [first[0], other[0], free]);
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn priority_does_not_overtake_within_a_key() {
    let app = App::start().await;
    let low = app.publish(keyed_with("k", json!({"priority": -5}))).await;
    let high = app.publish(keyed_with("k", json!({"priority": 100}))).await;
    let middle = app.publish(keyed_with("k", json!({"priority": 50}))).await;
    assert_eq!(complete_all(&app).await, [low, high, middle]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_key_orders_events_across_all_tags() {
    let app = App::start().await;
    let first = app.publish(keyed("k")).await;
    let second = app.publish(json!({"title": "a job", "tags": "b", "ordering_key": "k"})).await;
    assert!(app.claim("b", W2).await.is_none());
    app.claim_one("a", W1).await;
    assert!(app.claim("b", W2).await.is_none());
    app.complete(first, W1).await.expect(200);
    assert_eq!(app.claim_one("b", W2).await.event_id, second);
}

#[tokio::test(flavor = "multi_thread")]
async fn other_keys_and_events_without_one_run_in_parallel() {
    let app = App::start().await;
    let first = three_of(&app, "k").await;
    let second = three_of(&app, "l").await;
    let free = [app.publish_tagged("a").await, app.publish_tagged("a").await];
    assert_eq!(app.drain("a", W1).await, [first[0], second[0], free[0], free[1]]);
    app.complete(second[0], W1).await.expect(200);
    assert_eq!(app.drain("a", W1).await, [second[1]]);
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_are_compared_character_by_character() {
    let app = App::start().await;
    let keys = ["k", "K", "k ", "k:1", "1:k", "ключ"];
    for key in keys {
        app.publish(keyed(key)).await;
    }
    assert_eq!(app.drain("a", W1).await.len(), keys.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delayed_head_blocks_its_followers() {
    let app = App::with_fixed_clock().await;
    let head = app.publish(keyed_with("k", json!({"delay_seconds": 60}))).await;
    let next = app.publish(keyed("k")).await;
    app.advance_and_promote(59).await;
    assert!(app.claim("a", W1).await.is_none());
    app.advance_and_promote(1).await;
    assert_eq!(complete_all(&app).await, [head, next]);
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delayed_follower_waits_for_its_due_time_and_for_its_head() {
    let app = App::with_fixed_clock().await;
    let head = app.publish(keyed("k")).await;
    let delayed = app.publish(keyed_with("k", json!({"delay_seconds": 60}))).await;
    let last = app.publish(keyed("k")).await;
    let claim = claim_only(&app, head).await;
    assert_eq!(app.advance_and_promote(60).await, 1);
    assert!(app.claim("a", W2).await.is_none(), "it is due, but not the head of its key");
    app.settle(&claim, "complete", Naming::Lease).await.expect(200);
    assert_eq!(complete_all(&app).await, [delayed, last]);
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retrying_head_blocks_through_all_its_retries() {
    let app = App::with_fixed_clock().await;
    let [head, next, last] = three_of(&app, "k").await;
    for _ in 0..2 {
        let claim = claim_only(&app, head).await;
        app.settle(&claim, "fail", Naming::Lease).await.expect(200);
        assert!(app.claim("a", W2).await.is_none(), "it waits for its retry and blocks its key");
        app.advance_and_promote(299).await;
        assert!(app.claim("a", W2).await.is_none());
        app.advance_and_promote(1).await;
    }
    let claim = claim_only(&app, head).await;
    app.settle(&claim, "complete", Naming::Lease).await.expect(200);
    assert_eq!(complete_all(&app).await, [next, last]);
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_head_that_is_pending_again_is_still_the_head() {
    let app = App::with_fixed_clock().await;
    let [head, next, last] = three_of(&app, "k").await;
    let claim = claim_only(&app, head).await;
    app.operate(head, "reset").await.expect(200);
    let claim_again = claim_only(&app, head).await;
    app.settle(&claim, "complete", Naming::Lease).await.problem(409, "lease_lost");
    app.settle(&claim_again, "release", Naming::Lease).await.expect(200);
    let claim = claim_only(&app, head).await;
    app.settle_with(&claim, "release", json!({"delay_seconds": 5})).await.expect(200);
    assert!(app.claim("a", W1).await.is_none());
    app.advance_and_promote(5).await;
    claim_only(&app, head).await;
    app.advance(300);
    assert_eq!(app.reap().await, 1);
    let claim = claim_only(&app, head).await;
    app.settle_with(&claim, "fail", json!({"retry_after_seconds": 0})).await.expect(200);
    assert_eq!(complete_all(&app).await, [head, next, last]);
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_late_completion_of_a_head_that_was_reset_releases_the_next_event() {
    let app = App::start().await;
    let [head, next, _] = three_of(&app, "k").await;
    let claim = claim_only(&app, head).await;
    app.operate(head, "reset").await.expect(200);
    app.settle(&claim, "complete", Naming::Lease).await.expect(200);
    claim_only(&app, next).await;
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_event_is_released_however_the_head_ends() {
    let app = App::with_fixed_clock().await;
    let completed = app.publish(keyed("k")).await;
    let failed = app.publish(keyed("k")).await;
    let called_off = app.publish(keyed("k")).await;
    let cancelled = app.publish(keyed("k")).await;
    let expires_at = app.now() + TimeDelta::seconds(10);
    let expired = app.publish(keyed_with("k", json!({"expires_at": expires_at}))).await;
    let poison = app.publish(keyed("k")).await;
    let last = app.publish(keyed("k")).await;

    let claim = claim_only(&app, completed).await;
    app.settle(&claim, "complete", Naming::Lease).await.expect(200);
    let claim = claim_only(&app, failed).await;
    app.settle_with(&claim, "fail", json!({"retryable": false})).await.expect(400);
    let claim = claim_only(&app, called_off).await;
    app.operate(called_off, "cancel").await.expect(200);
    app.settle(&claim, "fail", Naming::Lease).await.expect(200);
    app.operate(cancelled, "cancel").await.expect(200);
    app.advance(10);
    assert_eq!(app.expire().await, 1);
    assert_eq!(app.status(expired).await, "FAILED");
    for _ in 0..5 {
        claim_only(&app, poison).await;
        app.advance(300);
        assert_eq!(app.reap().await, 1);
    }
    assert_eq!(app.status(poison).await, "FAILED");
    claim_only(&app, last).await;
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_that_is_cancelled_leaves_no_gap() {
    let app = App::with_fixed_clock().await;
    let [head, cancelled, last] = three_of(&app, "k").await;
    app.operate(cancelled, "cancel").await.expect(200);
    assert_eq!(complete_all(&app).await, [head, last]);
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_event_that_is_retried_joins_the_tail_of_its_key() {
    let app = App::start().await;
    let [head, next, last] = three_of(&app, "k").await;
    let claim = claim_only(&app, head).await;
    app.settle_with(&claim, "fail", json!({"retryable": false})).await.expect(400);
    app.operate(head, "retry").await.expect(200);
    let newest = app.publish(keyed("k")).await;
    assert_eq!(complete_all(&app).await, [next, last, head, newest]);
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn several_events_that_are_retried_at_once_keep_their_order() {
    let app = App::start().await;
    let failed = three_of(&app, "k").await;
    for id in failed {
        let claim = claim_only(&app, id).await;
        app.settle_with(&claim, "fail", json!({"retryable": false})).await.expect(400);
    }
    let waiting = app.publish(keyed("k")).await;
    assert_eq!(app.operate_on_all("/events/retry", json!({})).await, 3);
    assert_eq!(complete_all(&app).await, [waiting, failed[0], failed[1], failed[2]]);
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_may_hold_several_events_of_one_key_and_keeps_their_order() {
    let app = App::start().await;
    let keys = ["k", "l", "k", "k", "l"];
    let events: Vec<Value> = keys.iter().map(|key| keyed(key)).collect();
    let reply = app.post("/events/batch", &json!({"events": events})).await.expect(201).json();
    let published = ids(reply["events"].as_array().expect("events"));
    assert_eq!(app.drain("a", W1).await, [published[0], published[1]]);
    for (done, next) in [(0, Some(2)), (2, Some(3)), (1, Some(4)), (3, None), (4, None)] {
        app.complete(published[done], W1).await.expect(200);
        assert_eq!(app.drain("a", W1).await, next.map(|index: usize| published[index]).into_iter().collect::<Vec<_>>());
    }
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_of_settlements_releases_the_next_event_of_every_key() {
    let app = App::start().await;
    let mut nexts = Vec::new();
    for key in 0..20 {
        nexts.push(three_of(&app, &format!("k{key}")).await[1]);
    }
    let claimed = app.claim_batch("a", W1, 100).await;
    assert_eq!(claimed.len(), 20);
    let results: Vec<Value> =
        claimed.iter().map(|event| json!({"event_id": event["id"], "action": "complete"})).collect();
    app.post("/events/settle", &json!({"worker_id": W1, "settlements": results})).await.expect(200);
    let mut released = ids(&app.claim_batch("a", W1, 100).await);
    released.sort_unstable();
    assert_eq!(released, nexts);
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_is_only_pushed_does_not_block_the_key_for_workers() {
    let app = App::start().await;
    app.publish(json!({"event_type": "order.paid", "ordering_key": "k"})).await;
    let id = app.publish(keyed("k")).await;
    claim_only(&app, id).await;
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_publishers_of_one_key_each_keep_their_order() {
    const PUBLISHERS: usize = 8;
    const EACH: usize = 25;
    let app = App::start().await;
    let publishing = (0..PUBLISHERS).map(|_| async {
        let mut published = Vec::new();
        for _ in 0..EACH {
            published.push(app.publish(keyed("k")).await);
        }
        published
    });
    let published = futures_util::future::join_all(publishing).await;
    ledger::check(&app).await;
    let order = complete_all(&app).await;
    assert_eq!(order.len(), PUBLISHERS * EACH);
    for mine in published {
        let seen: Vec<i64> = order.iter().copied().filter(|id| mine.contains(id)).collect();
        assert_eq!(seen, mine);
    }
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_publishers_and_workers_of_a_few_keys_keep_the_order_and_lose_nothing() {
    const KEYS: usize = 3;
    const EACH: usize = 40;
    let app = App::start().await;
    let publishing = (0..KEYS * 2).map(|publisher| {
        let app = &app;
        async move {
            for _ in 0..EACH {
                app.publish(keyed(&format!("k{}", publisher % KEYS))).await;
            }
        }
    });
    let working = (0..4).map(|worker| {
        let app = &app;
        async move {
            let worker_id = format!("worker:{worker}");
            let mut done = 0;
            while done < EACH {
                let query = format!("/events/subscribe?tags=a&worker_id={worker_id}&wait_seconds=1");
                let reply = app.get(&query).await;
                if reply.status == 204 {
                    break;
                }
                let claim = Claim::of(&reply.expect(200).json());
                app.settle(&claim, "complete", Naming::Lease).await.expect(200);
                done += 1;
            }
        }
    });
    tokio::join!(futures_util::future::join_all(publishing), futures_util::future::join_all(working));
    complete_all(&app).await;
    assert_eq!(app.count("SELECT count(*) FROM waybill.deliveries WHERE status <> 'COMPLETED'").await, 0);
    let overtakings = "SELECT count(*) FROM (
        SELECT l.id, lag(l.id) OVER (PARTITION BY e.ordering_key ORDER BY e.id) AS before
        FROM waybill.event_log l JOIN waybill.events e ON e.id = l.event_id WHERE l.action = 'PICKED') p
        WHERE before > id";
    assert_eq!(app.count(overtakings).await, 0);
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_do_not_inherit_isolation_or_lazy_commits_from_the_database() {
    let url = database::migrated().await;
    let name = url_database(&url);
    database::execute(
        &url,
        &format!(
            "ALTER DATABASE {name} SET default_transaction_isolation = 'repeatable read';
             ALTER DATABASE {name} SET synchronous_commit = off"
        ),
    )
    .await;
    let app = App::start_with(crate::support::Options { url: Some(url), ..Default::default() }).await;
    let mut conn = app.engine().database().connection().await.expect("a connection");
    assert_eq!(setting(&mut conn, "transaction_isolation").await, "read committed");
    assert_eq!(setting(&mut conn, "synchronous_commit").await, "on");
}

fn url_database(url: &str) -> String {
    let path = url.split('?').next().unwrap_or_default();
    path.rsplit('/').next().expect("a database in the URL").to_owned()
}

async fn setting(conn: &mut diesel_async::AsyncPgConnection, name: &str) -> String {
    use diesel_async::RunQueryDsl;
    #[derive(diesel::QueryableByName)]
    struct Row {
        #[diesel(sql_type = diesel::sql_types::Text)]
        value: String,
    }
    let query = diesel::sql_query(format!("SELECT current_setting('{name}') AS value"));
    query.get_result::<Row>(conn).await.expect(name).value
}

#[tokio::test(flavor = "multi_thread")]
async fn any_number_of_keys_at_once_takes_a_bounded_number_of_locks() {
    use diesel_async::SimpleAsyncConnection;
    let app = App::start().await;
    let keys: Vec<String> = (0..20_000).map(|number| format!("key-{number}")).collect();
    let mut conn = database::connection(&app.url).await;
    conn.batch_execute("BEGIN").await.expect("a transaction");
    lock_keys(&mut conn, &keys.iter().map(|key| (NamespaceId::DEFAULT, key.as_str())).collect())
        .await
        .expect("the locks");
    let held = "SELECT count(*) FROM pg_locks JOIN pg_database d ON d.oid = database \
                WHERE locktype = 'advisory' AND datname = current_database()";
    let locks = app.count(held).await;
    assert!((1_000..=1_024).contains(&locks), "{locks}");
}
