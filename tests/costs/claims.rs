//! What a claim costs, in buffers: the same whatever else waits.

use super::{Lab, buffers, claim, claim_of_groups, find};
use crate::support::database;

/// The number of buffers that a claim of one event may read, and the factor by which a backlog may
/// increase it over an empty queue.
const MOST_BUFFERS: u64 = 60;
const MOST_GROWTH: f64 = 1.5;

/// A million events by SQL: about a third each `email`, `payment` and `report`, ten `rare`, and for
/// two in five a tag that no other event has.
const BACKLOG: &str = "
    CREATE TEMP TABLE backlog AS
    SELECT nextval('waybill.ids') AS id, nextval('waybill.ready_seq') AS seq,
           CASE WHEN g % 10 < 3 THEN ARRAY['email'] WHEN g % 10 < 6 THEN ARRAY['payment']
                ELSE ARRAY['report', 'user-' || g] END
           || CASE WHEN g > 999990 THEN ARRAY['rare'] ELSE '{}'::text[] END AS tags
    FROM generate_series(1, 1000000) g;
    INSERT INTO waybill.events (id, title, tags, payload) SELECT id, 'job', array_to_string(tags, ','), '{\"user\":1}' FROM backlog;
    INSERT INTO waybill.deliveries (id, event_id, status, priority, max_retries, ready_seq)
    SELECT id, id, 'PENDING', 0, 3, seq FROM backlog;
    INSERT INTO waybill.ready (queue, rank, seq, delivery_id)
    SELECT 't:' || tag, 0, seq, id FROM backlog, unnest(tags) AS tag ORDER BY 1, 2, 3;";

/// Claims one event of `tag` and rolls back, by each of the two statements. Returns the buffers that the dearer one
/// read, and the rows claimed.
async fn cost_of_claim(lab: &mut Lab, tag: &str) -> (u64, u64) {
    let mut costs = Vec::new();
    for call in [claim(1, tag), claim_of_groups(1, tag)] {
        lab.execute("BEGIN").await;
        let root = lab.explain(&call).await;
        lab.execute("ROLLBACK").await;
        let claimed = find(&root, "CTE claimed").and_then(|node| node["Actual Rows"].as_u64()).expect("rows");
        costs.push((buffers(&root), claimed));
    }
    assert_eq!(costs[0].1, costs[1].1, "{tag}: both claim the same");
    costs.into_iter().max().expect("two costs")
}

async fn prepared_lab(url: &str) -> Lab {
    let mut lab = Lab::open(url).await;
    // The first use of a table on a connection also reads its catalog entries.
    lab.publish(1, "warm-up").await;
    cost_of_claim(&mut lab, "warm-up").await;
    lab
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_costs_the_same_with_a_million_events_of_other_tags() {
    // The requested tag, and all tags of the event that is found, each of which costs an entry.
    let cases: [(&str, &[&str]); 5] = [
        ("mine", &["mine"]),
        ("email", &["email"]),
        ("user-500009", &["report", "user-500009"]),
        ("rare", &["report", "user-999997", "rare"]),
        ("nobody", &[]),
    ];
    let mut alone = Vec::new();
    for (tag, tags) in cases {
        let url = database::migrated().await;
        let mut lab = prepared_lab(&url).await;
        if !tags.is_empty() {
            lab.publish(1, &tags.join(",")).await;
        }
        alone.push(cost_of_claim(&mut lab, tag).await);
    }

    let url = database::migrated().await;
    database::execute(&url, BACKLOG).await;
    database::execute(&url, "ANALYZE waybill.events, waybill.deliveries, waybill.ready").await;
    let mut lab = prepared_lab(&url).await;
    lab.publish(1, "mine").await;
    for ((tag, tags), (cost_alone, claimed_alone)) in cases.into_iter().zip(alone) {
        let (cost, claimed) = cost_of_claim(&mut lab, tag).await;
        println!("{tag}: {cost} buffers, {cost_alone} in an empty queue");
        assert_eq!((claimed, claimed_alone), if tags.is_empty() { (0, 0) } else { (1, 1) }, "{tag}");
        assert!(cost <= MOST_BUFFERS, "{tag}: {cost} buffers");
        // An empty index has no root page to read; reading a tall one costs its height.
        let most = (cost_alone as f64 * MOST_GROWTH).max(9.0);
        assert!(cost as f64 <= most, "{tag}: {cost} buffers against {cost_alone} in an empty queue");
    }
}
