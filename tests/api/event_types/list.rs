//! `GET /event-types`: what is declared, and what is sent.

use serde_json::{Value, json};

use crate::support::{App, database};

fn names(page: &Value) -> Vec<&str> {
    page["event_types"].as_array().expect("types").iter().map(|row| row["name"].as_str().expect("a name")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn declared_and_undeclared_types_are_listed_with_their_events() {
    let app = App::start().await;
    app.put("/event-types/order.paid", &json!({"description": "Paid.", "schema": {"type": "integer"}}))
        .await
        .expect(201);
    app.put("/event-types/order.unused", &json!({})).await.expect(201);
    for n in 0..3 {
        app.publish(json!({"event_type": "order.paid", "payload": n})).await;
    }
    app.publish(json!({"event_type": "album.shared"})).await;
    app.publish_tagged("a").await;
    let page = app.get("/event-types").await.expect(200).json();
    assert_eq!((names(&page), &page["next"]), (vec!["album.shared", "order.paid", "order.unused"], &json!(null)));
    let [shared, paid, unused] = [0, 1, 2].map(|index| &page["event_types"][index]);
    assert_eq!(
        (&shared["declared"], &shared["version"], &shared["created_at"]),
        (&json!(false), &json!(null), &json!(null))
    );
    assert_eq!((&shared["events_last_day"], &shared["events_last_day_is_exact"]), (&json!(1), &json!(true)));
    assert!(shared["last_event_at"].is_string());
    assert_eq!((&paid["declared"], &paid["version"], &paid["has_schema"]), (&json!(true), &json!(1), &json!(true)));
    assert_eq!((&paid["description"], &paid["events_last_day"]), (&json!("Paid."), &json!(3)));
    assert_eq!(
        (&unused["has_schema"], &unused["events_last_day"], &unused["last_event_at"]),
        (&json!(false), &json!(0), &json!(null))
    );
    let other = app.namespace("other").await;
    assert_eq!(names(&other.get("/event-types").await.expect(200).json()), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_are_in_the_order_of_names_both_ways() {
    let app = App::start().await;
    let mut all = Vec::new();
    for n in 0..7 {
        all.push(format!("seen.{n}"));
        app.publish(json!({"event_type": format!("seen.{n}")})).await;
        for name in [format!("declared.{n}"), format!("seen.{n}.x")] {
            app.put(&format!("/event-types/{name}"), &json!({})).await.expect(201);
            all.push(name);
        }
    }
    all.extend(["Ünsorted".to_owned(), "waybill".to_owned(), "waybill/x".to_owned(), "waybill-".to_owned()]);
    for name in &all[21..] {
        app.publish(json!({"event_type": name})).await;
    }
    all.sort_unstable();
    for limit in [1, 2, 3, 5, 100] {
        for order in ["asc", "desc"] {
            let pages = app.walk(&format!("/event-types?limit={limit}&order={order}"), "name").await;
            let mut walked: Vec<Value> = pages.concat();
            if order == "desc" {
                walked.reverse();
            }
            assert_eq!(walked, all.iter().map(|name| json!(name)).collect::<Vec<_>>(), "{limit} {order}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_servers_own_types_are_left_out_however_many_events_they_have() {
    let app = App::start().await;
    app.publish(json!({"event_type": "a"})).await;
    app.publish(json!({"event_type": "z"})).await;
    let notices = "INSERT INTO waybill.events (title, tags, event_type) \
         SELECT 'n', '', 'waybill.' || n % 50 FROM generate_series(1, 2000) n";
    database::execute(&app.url, &format!("SELECT waybill.enforce_rules(false); {notices}")).await;
    for order in ["asc", "desc"] {
        let pages = app.walk(&format!("/event-types?limit=1&order={order}"), "name").await;
        assert_eq!(pages.concat().len(), 2);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn events_are_counted_up_to_a_thousand_and_not_older_ones() {
    let app = App::start().await;
    let many = "INSERT INTO waybill.events (title, tags, event_type, created_at) \
         SELECT 'n', '', 'old', now() - interval '2 days' FROM generate_series(1, 500) n; \
         INSERT INTO waybill.events (title, tags, event_type) SELECT 'n', '', 'many' FROM generate_series(1, 1500) n; \
         INSERT INTO waybill.events (title, tags, event_type) SELECT 'n', '', 'some' FROM generate_series(1, 1000) n";
    database::execute(&app.url, &format!("SELECT waybill.enforce_rules(false); {many}")).await;
    let page = app.get("/event-types").await.expect(200).json();
    let count = |index: usize| {
        let row = &page["event_types"][index];
        (row["events_last_day"].as_i64().expect("a count"), row["events_last_day_is_exact"].clone())
    };
    assert_eq!(names(&page), ["many", "old", "some"]);
    assert_eq!((count(0), count(2)), ((1_000, json!(false)), (1_000, json!(true))));
    // A sample of one in 64 events tells where the last day begins.
    assert!(count(1).0 < 64, "{page}");
    assert!(page["event_types"][1]["last_event_at"].is_string());
}
