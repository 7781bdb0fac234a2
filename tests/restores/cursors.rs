//! Cursors across histories.

use serde_json::json;

use super::noticing::{pretend_to_be_restored, simulate_restore};
use crate::support::pages::{LISTS, app_with_rows};
use crate::support::{App, database};

#[tokio::test(flavor = "multi_thread")]
async fn a_list_can_be_read_on_after_a_failover() {
    let app = App::start().await;
    let mut published = Vec::new();
    for _ in 0..4 {
        published.push(app.publish_tagged("a").await);
    }
    app.claim_one("a", "w:1").await;
    app.claim_one("a", "w:1").await;
    let events = app.next_of("/events?limit=2").await;
    let logs = app.next_of("/logs?limit=1").await;
    simulate_restore(&app).await;
    published.push(app.publish_tagged("a").await);
    let rest = app.get_after("/events", &events).await.expect(200).json();
    let ids: Vec<i64> = rest["events"].as_array().expect("events").iter().map(|e| e["id"].as_i64().unwrap()).collect();
    assert_eq!(ids, published[2..]);
    let rest = app.get_after("/logs", &logs).await.expect(200).json();
    assert_eq!(rest["logs"].as_array().expect("logs").len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cursor_of_a_lost_history_is_refused_by_every_list() {
    let app = app_with_rows().await;
    simulate_restore(&app).await;
    let mut lost = Vec::new();
    for (list, _) in LISTS {
        lost.push((list, app.next_of(&format!("{list}?limit=1")).await));
    }
    // The same backup again, which does not have the history that began after it.
    database::execute(&app.url, "DELETE FROM waybill.histories WHERE first_id > 0").await;
    pretend_to_be_restored(&app.url).await;
    app.engine().check_history().await.expect("it is noticed");
    for (list, cursor) in lost {
        let problem = app.get_after(list, &cursor).await.problem(400, "cursor_mismatch");
        let error = json!({"field": "after", "reason": "belongs to a state of the database that a restore has undone"});
        assert_eq!(problem["errors"], json!([error]), "{list}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cursor_of_a_history_unknown_to_this_server_is_accepted() {
    let app = crate::push::with_flags(&["--notify=false"]).await;
    let other = crate::push::second_server(&app, &["--notify=false"]).await;
    let published = [app.publish_tagged("a").await, app.publish_tagged("a").await];
    database::execute(&app.url, "BEGIN; SELECT waybill.begin_history(true); COMMIT").await;
    other.engine().check_history().await.expect("it is noticed");
    assert_ne!(app.engine().epoch().expect("an epoch"), other.engine().epoch().expect("an epoch"));
    let cursor = other.next_of("/events?limit=1").await;
    let page = app.get_after("/events", &cursor).await.expect(200).json();
    assert_eq!(page["events"][0]["id"], published[1]);
}

/// Another server has noticed first, and the list already has ids of the new history.
#[tokio::test(flavor = "multi_thread")]
async fn a_cursor_to_rows_of_a_history_unknown_to_this_server_stays_valid() {
    for list in ["events", "logs"] {
        let app = crate::push::with_flags(&["--notify=false"]).await;
        database::execute(&app.url, "BEGIN; SELECT waybill.begin_history(true); COMMIT").await;
        for _ in 0..3 {
            app.publish_tagged("a").await;
            app.claim_one("a", "w:1").await;
        }
        // On a busy machine it may have noticed already, by a new connection: the cursor is valid in both cases.
        let cursor = app.next_of(&format!("/{list}?limit=1")).await;
        app.engine().check_history().await.expect("it is noticed by now");
        let page = app.get_after(&format!("/{list}"), &cursor).await.expect(200).json();
        assert_eq!(page[list].as_array().expect("a list").len(), 2, "{list}");
    }
}
