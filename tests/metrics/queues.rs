//! Queues by tag: how deep they are, since when their events wait, and who works on them.

use serde_json::json;

use super::{Scrape, start};
use crate::support::{App, Options};

fn of(family: &str, namespace: &str, tag: &str) -> String {
    format!("waybill_queue_{family}{{namespace=\"{namespace}\",tag=\"{tag}\"}}")
}

#[tokio::test(flavor = "multi_thread")]
async fn each_tag_shows_what_waits_since_when_and_for_whom() {
    let app = start(&[]).await;
    app.publish_tagged("slow").await;
    app.advance(90);
    for _ in 0..3 {
        app.publish_tagged("fast,\"odd\"").await;
    }
    assert_eq!(app.claim("fast", "w:1").await.map(|event| event["worker_id"].clone()), Some(json!("w:1")));
    // Sightings are stored every few seconds.
    app.get("/workers").await.expect(200);
    app.advance(10);
    let scrape = Scrape::of(&app).await;
    assert_eq!(scrape.value(&of("depth", "default", "slow")), 1.0);
    assert_eq!(scrape.value(&of("oldest_seconds", "default", "slow")), 100.0);
    assert_eq!(scrape.value(&of("workers", "default", "slow")), 0.0);
    for tag in ["fast", "\\\"odd\\\""] {
        assert_eq!(scrape.value(&of("depth", "default", tag)), 2.0, "{tag}");
        assert_eq!(scrape.value(&of("oldest_seconds", "default", tag)), 10.0, "{tag}");
    }
    assert_eq!(scrape.value(&of("workers", "default", "fast")), 1.0);
    assert_eq!(scrape.value("waybill_queues_complete"), 1.0);
    assert_eq!(scrape.value("waybill_database_up"), 1.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queue_that_is_empty_has_no_series() {
    let app = start(&[]).await;
    app.publish_tagged("a").await;
    assert!(Scrape::of(&app).await.has(&of("depth", "default", "a")));
    app.claim("a", "w:1").await.expect("an event");
    let scrape = Scrape::of(&app).await;
    assert!(!scrape.names().iter().any(|name| name.starts_with("waybill_queue_")), "{scrape:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_deepest_tags_have_their_own_label() {
    let app = start(&[]).await;
    let mut events = Vec::new();
    for tag in 0..60 {
        events.push(json!({"title": "t", "tags": format!("t{tag:02}")}));
    }
    // The last tag in the order of names is the deepest.
    events.extend(vec![json!({"title": "t", "tags": "zz"}); 5]);
    app.post("/events/batch", &json!({ "events": events })).await.expect(201);
    app.advance(30);
    let scrape = Scrape::of(&app).await;
    assert_eq!(scrape.samples.keys().filter(|series| series.starts_with("waybill_queue_depth{")).count(), 51);
    assert_eq!(scrape.value(&of("depth", "default", "zz")), 5.0);
    assert_eq!(scrape.value(&of("depth", "", "other")), 11.0);
    assert_eq!(scrape.value(&of("oldest_seconds", "", "other")), 30.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_sees_its_own_tags_and_subscriptions_alone() {
    let flags = vec!["--metrics-cache-ms=0".to_owned()];
    let app = App::start_with(Options { flags, ..Options::default() }).await.with_admin_key().await;
    let mut readers = Vec::new();
    for name in ["north", "south"] {
        let team = app.team(name).await;
        team.publish_tagged(&format!("mail-of-{name}")).await;
        readers.push(team.holder_of("read").await);
    }
    let whole = app.get("/metrics").await.expect(200).text;
    assert!(whole.contains("mail-of-north") && whole.contains("mail-of-south"), "{whole}");
    for (reader, own, other) in [(&readers[0], "north", "south"), (&readers[1], "south", "north")] {
        let text = reader.get("/metrics").await.expect(200).text;
        assert!(text.contains(&of("depth", own, &format!("mail-of-{own}"))), "{text}");
        assert!(!text.contains(other) && !text.contains("waybill_events_received") && !text.contains("process_"));
        assert_eq!(text.lines().count(), 3, "{text}");
    }
}
