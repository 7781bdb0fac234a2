//! What a scrape of `/metrics` costs, in buffers: among a million events, and with more tags than it looks at.

use waybill::store::lists::gauges::{QueueCaps, read_queues};

use super::lists;
use crate::support::{App, database};

/// The limits of a scrape.
const CAPS: QueueCaps = QueueCaps { tags_per_namespace: 100, queues: 500, waiting: 1_000, workers: 2_000 };

/// The most that the queues may cost among a million events, of which 200,000 wait under one tag.
const MOST_OF_ONE_TAG: i64 = 100;

/// The most for each tag, with its head and its count.
const MOST_PER_TAG: i64 = 25;

#[tokio::test(flavor = "multi_thread")]
async fn a_backlog_of_one_tag_is_read_at_a_bounded_cost() {
    let app = lists::app().await;
    let (rows, buffers) = app.buffers_of_repeated(async |conn| read_queues(conn, None, CAPS).await).await;
    println!("{buffers} buffers");
    let found: Vec<(&str, &str, i64)> =
        rows.iter().map(|row| (row.namespace.as_str(), row.tag.as_str(), row.waiting)).collect();
    assert_eq!(found, [("backlog", "many", 1_000)]);
    assert!(buffers <= MOST_OF_ONE_TAG, "{buffers} buffers");
}

/// Ten namespaces with 300 tags each, and 2,500 active workers.
const MANY_TAGS: &str = "
    SELECT waybill.enforce_rules(false);
    INSERT INTO waybill.namespaces (id, name) SELECT n, 'n' || n FROM generate_series(11, 20) n;
    INSERT INTO waybill.deliveries (namespace_id, id, event_id, status, priority, max_retries, ready_seq)
        SELECT n, n * 10000 + t, n * 10000 + t, 'PENDING', 0, 3, n * 10000 + t
        FROM generate_series(11, 20) n, generate_series(1, 1500) t;
    INSERT INTO waybill.ready (namespace_id, seq, delivery_id, rank, queue)
        SELECT n, n * 10000 + t, n * 10000 + t, 0, 't:tag' || t % 300
        FROM generate_series(11, 20) n, generate_series(1, 1500) t;
    INSERT INTO waybill.workers (namespace_id, worker_id, tags, first_seen_at, last_seen_at)
        SELECT 11, 'w:' || n, '{tag1,tag2}', now(), now() FROM generate_series(1, 2500) n;
";

#[tokio::test(flavor = "multi_thread")]
async fn more_tags_than_are_searched_and_more_workers_than_are_counted_cost_no_more() {
    let app = App::with_fixed_clock().await;
    database::execute(&app.url, MANY_TAGS).await;
    database::execute(&app.url, "VACUUM ANALYZE").await;
    let (rows, buffers) = app.buffers_of_repeated(async |conn| read_queues(conn, None, CAPS).await).await;
    println!("{} tags, {buffers} buffers", rows.len());
    assert_eq!(rows.len() as i64, CAPS.queues + 1, "one more shows that there are more");
    assert!(rows.iter().all(|row| row.waiting == 5 && row.workers.is_none()), "{:?}", rows.first());
    assert!(buffers <= MOST_PER_TAG * (CAPS.queues + 1), "{buffers} buffers");
}
