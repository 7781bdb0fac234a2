//! Ids are numbers that JSON carries exactly: at most 2^53 - 1.

use serde_json::json;
use waybill::domain::history::JUMP;

use crate::support::{App, database};

/// 2^53 - 1.
const LAST: i64 = 9_007_199_254_740_991;

#[tokio::test(flavor = "multi_thread")]
async fn no_sequence_goes_beyond_the_largest_id_or_begins_again() {
    let url = database::migrated().await;
    let sequences = "SELECT count(*) FROM pg_sequences WHERE schemaname = 'waybill'";
    assert!(database::count(&url, sequences).await > 0);
    assert_eq!(database::count(&url, &format!("{sequences} AND (max_value > {LAST} OR cycle)")).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_largest_id_and_lease_work_as_any_others_and_none_is_issued_after_them() {
    let app = App::start().await;
    let near_the_end = format!(
        "SELECT setval('waybill.ids', {LAST} - 1), setval('waybill.ready_seq', {LAST} - 1), \
                setval('waybill.event_log_ids', {LAST} - 2)"
    );
    database::execute(&app.url, &near_the_end).await;
    let id = app.publish_tagged("a").await;
    assert_eq!(id, LAST);
    let claim = app.claim_one("a", "w:1").await;
    assert_eq!((claim.event_id, claim.lease_id), (LAST, LAST));
    let body = json!({"worker_id": "w:1", "lease_id": LAST});
    let entry = app.post(&format!("/events/{id}/complete"), &body).await.expect(200).json();
    assert_eq!(entry["id"], LAST);
    for list in ["/events", "/logs"] {
        let cursor = app.next_of(&format!("{list}?limit=1&order=desc")).await;
        app.get_after(&format!("{list}?order=desc"), &cursor).await.expect(200);
    }
    let refused = app.post("/events", &json!({"title": "a job", "tags": "a"})).await;
    assert!(refused.status >= 500, "{refused:?}");
    assert_eq!(app.count("SELECT count(*) FROM waybill.events").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restore_skips_less_than_2_to_the_37th_ids() {
    let app = App::start().await;
    let before = app.publish_tagged("a").await;
    for restores in 1..=20 {
        database::execute(&app.url, "SELECT waybill.begin_history(true)").await;
        let id = app.publish_tagged("a").await;
        assert!(id - before < restores * (2 * JUMP + 10), "{id} after {restores} restores");
    }
    // So there is room for tens of thousands of restores.
    const { assert!(LAST / (2 * JUMP) > 60_000) };
}
