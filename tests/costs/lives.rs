//! How much WAL an event writes from publish to completion, and how its row changes.

use super::{Lab, claim, complete, hand_over, publish, wal_bytes};
use crate::support::database;

/// Bytes of WAL per event, in batches of a third of 64 connections, without the commits.
const MOST_WAL_BYTES: u64 = 1_750;

/// The same for events that are handed over to waiting workers.
const MOST_WAL_BYTES_HANDED_OVER: u64 = 1_250;

/// The number of events in one batch.
const BATCH: usize = 21;

#[tokio::test(flavor = "multi_thread")]
async fn an_event_writes_a_bounded_number_of_wal_bytes() {
    let url = database::migrated().await;
    database::execute(&url, "SELECT waybill.create_event_log_partition(now()::date)").await;
    let mut lab = Lab::open(&url).await;
    // First pages and first uses cost more.
    for _ in 0..3 {
        lab.publish(BATCH, "mail").await;
        let claimed = lab.claim(BATCH, "mail").await;
        lab.execute(&complete(&claimed)).await;
    }
    let mut bytes = [0, 0, 0];
    const ROUNDS: usize = 20;
    for _ in 0..ROUNDS {
        bytes[0] += wal_bytes(&lab.explain(&publish(BATCH, "mail")).await);
        bytes[1] += wal_bytes(&lab.explain(&claim(BATCH, "mail")).await);
        let held = held(&mut lab).await;
        bytes[2] += wal_bytes(&lab.explain(&complete(&held)).await);
    }
    let each = bytes.map(|bytes| bytes / (ROUNDS * BATCH) as u64);
    println!(
        "WAL per event: {} (publish {}, claim {}, complete {})",
        each.iter().sum::<u64>(),
        each[0],
        each[1],
        each[2]
    );
    assert!(each.iter().all(|bytes| *bytes > 100), "every step writes WAL: {each:?}");
    assert!(each.iter().sum::<u64>() <= MOST_WAL_BYTES, "{each:?} bytes");
}

/// No entry of `ready` is inserted and deleted, and the delivery is updated once less.
#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_is_handed_over_writes_less_wal() {
    let url = database::migrated().await;
    database::execute(&url, "SELECT waybill.create_event_log_partition(now()::date)").await;
    let mut lab = Lab::open(&url).await;
    // First pages and first uses cost more.
    for _ in 0..3 {
        lab.execute(&hand_over(BATCH, "mail")).await;
        let held = held(&mut lab).await;
        lab.execute(&complete(&held)).await;
    }
    let mut bytes = [0, 0];
    const ROUNDS: usize = 20;
    for _ in 0..ROUNDS {
        bytes[0] += wal_bytes(&lab.explain(&hand_over(BATCH, "mail")).await);
        let held = held(&mut lab).await;
        assert_eq!(held.len(), BATCH);
        bytes[1] += wal_bytes(&lab.explain(&complete(&held)).await);
    }
    let each = bytes.map(|bytes| bytes / (ROUNDS * BATCH) as u64);
    println!("WAL per event that is handed over: {} (publish {}, complete {})", each[0] + each[1], each[0], each[1]);
    assert!(each.iter().all(|bytes| *bytes > 100), "every step writes WAL: {each:?}");
    assert!(each.iter().sum::<u64>() <= MOST_WAL_BYTES_HANDED_OVER, "{each:?} bytes");
}

/// Returns the held deliveries.
async fn held(lab: &mut Lab) -> Vec<super::Claimed> {
    use diesel_async::RunQueryDsl as _;
    let sql = "SELECT id AS claimed_id, lease_id FROM waybill.deliveries WHERE status = 'PROCESSING' ORDER BY id";
    diesel::sql_query(sql).load(&mut lab.conn).await.expect("rows")
}

/// Returns how many entries the index of the deliveries has on top of one per event. A row that moves to another page leaves
/// a second one.
async fn moved_rows(lab: &mut Lab, url: &str, events: usize) -> i64 {
    lab.execute("CREATE EXTENSION pageinspect").await;
    // Page 0 has no entries. The first entry of a page is its bound, unless it is the last one.
    let entries = database::count(
        url,
        "SELECT sum(s.live_items - (s.btpo_next > 0)::int)::bigint
         FROM generate_series(1, pg_relation_size('waybill.deliveries_pkey') / 8192 - 1) page,
              LATERAL bt_page_stats('waybill.deliveries_pkey', page) s
         WHERE s.type = 'l'",
    )
    .await;
    entries - events as i64
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delivery_is_updated_in_place() {
    let url = database::migrated().await;
    let mut lab = Lab::open(&url).await;
    lab.publish(BATCH, "mail").await;
    let claimed = lab.claim(BATCH, "mail").await;
    lab.execute(&complete(&claimed)).await;
    assert_eq!((claimed.len(), moved_rows(&mut lab, &url, BATCH).await), (BATCH, 0));
}

/// Both versions of every row of a page are there until the claim has ended.
#[tokio::test(flavor = "multi_thread")]
async fn a_page_has_room_for_the_claim_of_all_its_deliveries() {
    let url = database::migrated().await;
    let mut lab = Lab::open(&url).await;
    lab.publish(600, "mail").await;
    assert_eq!(lab.claim(600, "mail").await.len(), 600);
    assert_eq!(moved_rows(&mut lab, &url, 600).await, 0);
}
