//! What a claim costs, in buffers: the same whatever else waits.
//!
//! The statement is the server's own, explained on a connection set up like the server's, and
//! rolled back. Counting buffers is deterministic where timing is not.

use diesel::sql_types::{Array, BigInt, Integer, Nullable, SmallInt, Text, Timestamptz};
use diesel_async::{AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};
use serde_json::Value;
use waybill::store::claims::CLAIM_DELIVERIES;
use waybill::store::connect::connect;
use waybill::store::database::SETUP;

use crate::support::database;

/// Claims of one may touch this many buffers, and behind a backlog this many times what they
/// touch in an empty queue.
const MOST_BUFFERS: u64 = 60;
const MOST_GROWTH: f64 = 1.5;

/// A million events by SQL: about a third each `email`, `payment` and `report`, ten `rare`,
/// and a tag of its own for two in five.
const BACKLOG: &str = "
    CREATE TEMP TABLE backlog AS
    SELECT nextval('waybill.ids') AS id, nextval('waybill.ready_seq') AS seq,
           CASE WHEN g % 10 < 3 THEN ARRAY['email'] WHEN g % 10 < 6 THEN ARRAY['payment']
                ELSE ARRAY['report', 'user-' || g] END
           || CASE WHEN g > 999990 THEN ARRAY['rare'] ELSE '{}'::text[] END AS tags
    FROM generate_series(1, 1000000) g;
    INSERT INTO waybill.events (id, title, tags, payload) SELECT id, 'job', tags, '{\"user\":1}' FROM backlog;
    INSERT INTO waybill.deliveries (id, event_id, status, priority, max_retries, ready_seq)
    SELECT id, id, 'PENDING', 0, 3, seq FROM backlog;
    INSERT INTO waybill.ready (queue, rank, seq, delivery_id)
    SELECT 't:' || tag, 0, seq, id FROM backlog, unnest(tags) AS tag ORDER BY 1, 2, 3;";

/// One event with these tags, as a publisher would leave it.
async fn put_one(conn: &mut AsyncPgConnection, tags: &[&str]) {
    let tags = tags.join(",");
    conn.batch_execute(&format!(
        "WITH e AS (INSERT INTO waybill.events (title, tags) VALUES ('job', string_to_array('{tags}', ',')) RETURNING *),
              d AS (INSERT INTO waybill.deliveries (id, event_id, status, priority, max_retries, ready_seq)
                    SELECT id, id, 'PENDING', 0, 3, nextval('waybill.ready_seq') FROM e RETURNING id, ready_seq)
         INSERT INTO waybill.ready (queue, rank, seq, delivery_id)
         SELECT 't:' || tag, 0, ready_seq, d.id FROM d, e, unnest(e.tags) AS tag"
    ))
    .await
    .expect("an event");
}

#[derive(diesel::QueryableByName)]
struct Plan {
    #[diesel(sql_type = diesel::sql_types::Json, column_name = "QUERY PLAN")]
    plan: Value,
}

/// Claims one event of `tag` and takes it back; answers buffers touched and rows claimed.
async fn cost_of_claim(conn: &mut AsyncPgConnection, tag: &str) -> (u64, u64) {
    conn.batch_execute("BEGIN").await.expect("BEGIN");
    let explained: Plan = diesel::sql_query(format!("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {CLAIM_DELIVERIES}"))
        .bind::<Integer, _>(1)
        .bind::<Array<Text>, _>(vec![format!("t:{tag}")])
        .bind::<BigInt, _>(1)
        .bind::<BigInt, _>(4)
        .bind::<Array<Text>, _>(vec!["measure:1"])
        .bind::<Array<Integer>, _>(vec![300])
        .bind::<Nullable<Timestamptz>, _>(None::<chrono::DateTime<chrono::Utc>>)
        .bind::<Array<SmallInt>, _>(vec![i16::MIN])
        .bind::<Array<BigInt>, _>(vec![0])
        .get_result(conn)
        .await
        .expect("a plan");
    conn.batch_execute("ROLLBACK").await.expect("ROLLBACK");
    let root = &explained.plan[0]["Plan"];
    // Parts that nothing reads from run after the main plan, and count for themselves.
    let late = ["CTE taken", "CTE taken_elsewhere", "CTE watched", "CTE logged"]
        .map(|name| buffers(find(root, name).expect("the statement has this part")));
    let claimed = find(root, "CTE claimed").and_then(|node| node["Actual Rows"].as_u64()).expect("rows");
    (buffers(root) + late.iter().sum::<u64>(), claimed)
}

fn buffers(node: &Value) -> u64 {
    ["Shared Hit Blocks", "Shared Read Blocks"].iter().filter_map(|name| node[name].as_u64()).sum()
}

fn find<'a>(node: &'a Value, name: &str) -> Option<&'a Value> {
    if node["Subplan Name"] == name {
        return Some(node);
    }
    node["Plans"].as_array()?.iter().find_map(|child| find(child, name))
}

async fn prepared_connection(url: &str) -> AsyncPgConnection {
    let mut conn = connect(url, SETUP).await.expect("the database answers");
    // The first use of a table on a connection reads its catalogue entries, too.
    put_one(&mut conn, &["warm-up"]).await;
    cost_of_claim(&mut conn, "warm-up").await;
    conn
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_costs_the_same_behind_a_million_foreign_events() {
    // What is asked for, and all tags of the event that is found: each costs an entry.
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
        let mut conn = prepared_connection(&url).await;
        if !tags.is_empty() {
            put_one(&mut conn, tags).await;
        }
        alone.push(cost_of_claim(&mut conn, tag).await);
    }

    let url = database::migrated().await;
    database::execute(&url, BACKLOG).await;
    database::execute(&url, "ANALYZE waybill.events, waybill.deliveries, waybill.ready").await;
    let mut conn = prepared_connection(&url).await;
    put_one(&mut conn, &["mine"]).await;
    for ((tag, tags), (cost_alone, claimed_alone)) in cases.into_iter().zip(alone) {
        let (cost, claimed) = cost_of_claim(&mut conn, tag).await;
        println!("{tag}: {cost} buffers, {cost_alone} in an empty queue");
        assert_eq!((claimed, claimed_alone), if tags.is_empty() { (0, 0) } else { (1, 1) }, "{tag}");
        assert!(cost <= MOST_BUFFERS, "{tag}: {cost} buffers");
        // An empty index has no root to look at; looking into a tall one costs its height.
        let most = (cost_alone as f64 * MOST_GROWTH).max(9.0);
        assert!(cost as f64 <= most, "{tag}: {cost} buffers against {cost_alone} in an empty queue");
    }
}
