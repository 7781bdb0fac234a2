//! Cursors across histories.

use serde_json::Value;

use super::noticing::{pretend_to_be_restored, simulate_restore};
use crate::support::{App, database};

fn cursor_of(page: &Value) -> String {
    page["next"].as_str().expect("a cursor").to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_can_be_read_on_after_a_failover() {
    let app = App::start().await;
    let mut published = Vec::new();
    for _ in 0..4 {
        published.push(app.publish_tagged("a").await);
    }
    app.claim_one("a", "w:1").await;
    app.claim_one("a", "w:1").await;
    let events = cursor_of(&app.get("/events?limit=2").await.expect(200).json());
    let logs = cursor_of(&app.get("/logs?limit=1").await.expect(200).json());
    simulate_restore(&app).await;
    published.push(app.publish_tagged("a").await);
    let rest = app.get(&format!("/events?after={events}")).await.expect(200).json();
    let ids: Vec<i64> = rest["events"].as_array().expect("events").iter().map(|e| e["id"].as_i64().unwrap()).collect();
    assert_eq!(ids, published[2..]);
    let rest = app.get(&format!("/logs?after={logs}")).await.expect(200).json();
    assert_eq!(rest["logs"].as_array().expect("logs").len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cursor_of_a_lost_history_is_refused() {
    let app = App::start().await;
    app.publish_tagged("a").await;
    simulate_restore(&app).await;
    app.publish_tagged("a").await;
    let lost = cursor_of(&app.get("/events?limit=1").await.expect(200).json());
    // The same backup again, which does not have the history that began after it.
    database::execute(&app.url, "DELETE FROM waybill.histories WHERE first_id > 0").await;
    pretend_to_be_restored(&app.url).await;
    app.engine().check_history().await.expect("it is noticed");
    for list in ["/events", "/deliveries", "/logs", "/dead-letters", "/subscriptions", "/operations"] {
        let reply = app.get(&format!("{list}?after={lost}")).await;
        assert!(reply.text.contains("the database was restored"), "{reply:?}");
        reply.names(&["after"]);
    }
}

/// Another server has noticed first.
#[tokio::test(flavor = "multi_thread")]
async fn a_cursor_of_a_history_unknown_to_this_server_is_accepted() {
    let app = crate::push::with_flags(&["--notify=false"]).await;
    app.publish_tagged("a").await;
    database::execute(&app.url, "BEGIN; SELECT waybill.begin_history(true); COMMIT").await;
    let epoch = crate::push::rows(&app, "SELECT epoch FROM waybill.histories ORDER BY first_id DESC LIMIT 1").await;
    let cursor = format!("{}_0", epoch[0]["epoch"].as_str().expect("a text"));
    let page = app.get(&format!("/events?after={cursor}")).await.expect(200).json();
    assert_eq!(page["events"].as_array().expect("events").len(), 1);
}

/// Another server has noticed first, and the list already has ids of the new history.
#[tokio::test(flavor = "multi_thread")]
async fn a_cursor_to_rows_of_a_history_unknown_to_this_server_stays_valid() {
    for list in ["events", "logs"] {
        let app = crate::push::with_flags(&["--notify=false"]).await;
        let before = app.engine().epoch().expect("an epoch");
        database::execute(&app.url, "BEGIN; SELECT waybill.begin_history(true); COMMIT").await;
        for _ in 0..3 {
            app.publish_tagged("a").await;
            app.claim_one("a", "w:1").await;
        }
        assert_eq!(app.engine().epoch().expect("an epoch"), before, "it has not noticed the new history");
        let cursor = cursor_of(&app.get(&format!("/{list}?limit=1")).await.expect(200).json());
        app.engine().check_history().await.expect("it is noticed by now");
        let page = app.get(&format!("/{list}?after={cursor}")).await.expect(200).json();
        assert_eq!(page[list].as_array().expect("a list").len(), 2, "{list}");
    }
}
