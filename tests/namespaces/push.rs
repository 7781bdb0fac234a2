//! Two namespaces that push: events, subscriptions, breakers, dead letters, replays and metrics.

use serde_json::json;

use super::{id_of, two_namespaces};
use crate::support::receiver::{Receiver, Reply};
use crate::support::{App, ledger, until};

#[tokio::test(flavor = "multi_thread")]
async fn an_event_is_pushed_only_to_subscriptions_of_its_namespace() {
    let app = App::start().await;
    let (north, south) = two_namespaces(&app).await;
    let (one, two) = (Receiver::start().await, Receiver::start().await);
    north.subscribe(&one.url("/"), json!({"event_types": ["order.*"], "ordering": "by_key"})).await;
    south.subscribe(&two.url("/"), json!({"event_types": ["order.*"], "ordering": "by_key"})).await;
    let order = |n: i64| json!({"event_type": "order.paid", "payload": {"n": n}, "ordering_key": "k"});
    for n in 0..3 {
        north.publish(order(n)).await;
        south.publish(order(n + 100)).await;
    }
    app.publish(order(999)).await;
    let numbers = |requests: Vec<crate::support::receiver::Recorded>| {
        requests.iter().map(|request| request.json()["n"].as_i64().expect("a number")).collect::<Vec<_>>()
    };
    assert_eq!(numbers(one.received(3).await), [0, 1, 2]);
    assert_eq!(numbers(two.received(3).await), [100, 101, 102]);
    until("all are recorded", async || {
        app.count("SELECT count(*) FROM waybill.deliveries WHERE status IN ('PENDING', 'PROCESSING')").await == 0
    })
    .await;
    assert_eq!((one.count(), two.count()), (3, 3));
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_breaker_of_an_endpoint_opens_only_for_the_namespace_that_it_failed_for() {
    let app = App::start_with(crate::support::Options {
        flags: vec!["--breaker-failures".into(), "2".into()],
        ..Default::default()
    })
    .await;
    let (north, south) = two_namespaces(&app).await;
    let receiver = Receiver::start().await;
    let url = receiver.url("/shared");
    let failing =
        north.subscribe(&url, json!({"backoff": {"strategy": "fixed", "seconds": 0}, "max_attempts": 10})).await;
    receiver.always(Reply::status(500));
    north.publish(json!({"event_type": "t"})).await;
    let state = async |team: &App, id: i64| {
        team.get(&format!("/subscriptions/{id}")).await.expect(200).json()["endpoint"]["breaker"].clone()
    };
    until("the breaker is open", async || state(&north, id_of(&failing)).await == "open").await;
    receiver.always(Reply::ok());
    let healthy = south.subscribe(&url, json!({})).await;
    let id = south.publish(json!({"event_type": "t"})).await;
    until("it is delivered", async || south.event(id).await["status"] == "COMPLETED").await;
    assert_eq!(state(&south, id_of(&healthy)).await, "closed");
    assert_eq!(state(&north, id_of(&failing)).await, "open");
    // Notices about it are events of the namespace.
    let notices = "SELECT count(*) FROM waybill.events e JOIN waybill.namespaces n ON n.id = e.namespace_id \
                   WHERE event_type = 'waybill.subscription.breaker_opened' AND n.name";
    assert_eq!(
        (app.count(&format!("{notices} = 'north'")).await, app.count(&format!("{notices} <> 'north'")).await),
        (1, 0)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_letters_are_replayed_in_their_namespace() {
    let app = App::start().await;
    let (north, south) = two_namespaces(&app).await;
    let (one, two) = (Receiver::start().await, Receiver::start().await);
    for (team, receiver) in [(&north, &one), (&south, &two)] {
        team.subscribe(&receiver.url("/"), json!({"max_attempts": 1})).await;
        receiver.always(Reply::status(400));
        team.publish(json!({"event_type": "t", "payload": {"a": 1}})).await;
        let letters = async || {
            team.get("/dead-letters").await.expect(200).json()["dead_letters"].as_array().expect("a list").len()
        };
        until("it is a dead letter", async || letters().await == 1).await;
        receiver.always(Reply::ok());
    }
    let operation = north.start_operation("/dead-letters/replay", &json!({"filter": {}})).await;
    until("it is replayed", async || north.operation(&operation).await["status"] == "COMPLETED").await;
    assert_eq!(north.operation(&operation).await["done"], 1);
    one.received(2).await;
    let open = south.get("/dead-letters?replayed=false").await.expect(200).json();
    assert_eq!((two.count(), open["dead_letters"].as_array().expect("a list").len()), (1, 1));
    until("all are recorded", async || {
        app.count("SELECT count(*) FROM waybill.deliveries WHERE status IN ('PENDING', 'PROCESSING')").await == 0
    })
    .await;
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_of_a_namespace_show_only_its_subscriptions() {
    let app = App::start().await;
    let (north, south) = two_namespaces(&app).await;
    let receiver = Receiver::start().await;
    let mut ids = Vec::new();
    for team in [&north, &south] {
        ids.push(id_of(&team.subscribe(&receiver.url("/"), json!({})).await));
        team.publish(json!({"event_type": "t"})).await;
    }
    receiver.received(2).await;
    let namespace = async |name: &str| id_of(&app.get(&format!("/namespaces/{name}")).await.expect(200).json()) as i32;
    let text = app.engine().metrics().text_of(namespace("north").await).expect("metrics");
    let label = |id: i64| format!("{{subscription=\"{id}\"}}");
    assert!(text.contains(&label(ids[0])) && !text.contains(&label(ids[1])), "{text}");
    assert!(!text.contains("waybill_events_received"), "{text}");
}
