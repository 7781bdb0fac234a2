//! `waybill workers`, `tags` and `stats`.

use serde_json::json;

use super::{json as run_json, run, start};
use crate::support::App;
use crate::support::work::W1;

async fn some_work(app: &App) {
    app.publish_tagged("images").await;
    app.publish_tagged("images").await;
    app.publish_tagged("mail").await;
    app.claim_one("images", W1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tags_and_workers_are_listed() {
    let app = App::start().await;
    some_work(&app).await;
    let tags = run_json(&app, &["tags"]).await;
    assert_eq!((&tags["tags"][0]["tag"], &tags["tags"][1]["unserved"]), (&json!("images"), &json!(true)));
    let workers = run_json(&app, &["workers"]).await;
    assert_eq!((&workers["workers"][0]["worker_id"], &workers["workers"][0]["holding"]), (&json!(W1), &json!(1)));
    let workers = run(&app, &["workers"]).await.expect_success();
    let lines: Vec<&str> = workers.lines().collect();
    assert!(lines[0].starts_with("WORKER") && lines[0].ends_with("LAST SEEN  STATE"), "{workers}");
    assert!(lines[1].starts_with(W1) && lines[1].ends_with("ok"), "{workers}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_has_not_called_for_long_is_shown_as_silent() {
    let app = App::with_fixed_clock().await;
    app.claim("images", "host:1").await;
    assert!(run(&app, &["workers"]).await.expect_success().ends_with("ok\n"));
    app.advance(89);
    app.claim("images", "host:2").await;
    app.advance(2);
    let workers = run(&app, &["workers"]).await.expect_success();
    let states: Vec<&str> = workers.lines().skip(1).filter_map(|line| line.split(' ').next_back()).collect();
    assert_eq!(states, ["silent", "ok"], "{workers}");
    let listed = run_json(&app, &["workers"]).await;
    let silent: Vec<_> = [0, 1].map(|n| listed["workers"][n]["silent"].clone()).to_vec();
    assert_eq!(silent, [json!(true), json!(false)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_present_state_is_shown_in_numbers() {
    let app = start().await;
    some_work(&app).await;
    let stats = run(&app, &["stats"]).await.expect_success();
    let (facts, tags) = stats.split_once("\n\n").expect("two parts");
    assert!(facts.starts_with("waiting:         2\ndelayed:         0 (0 of them retrying)\n"), "{facts}");
    assert!(facts.contains("running:         1\n"), "{facts}");
    assert!(tags.starts_with("TAG     WAITING  OLDEST  WORKERS  IN/MIN  DONE/MIN  STATE\n"), "{tags}");
    let one = run_json(&app, &["stats", "--tag", "mail"]).await;
    assert_eq!((&one["waiting"], &one["tags"][0]["tag"]), (&json!(1), &json!("mail")));
    let history = run_json(&app, &["stats", "--history", "--from", "30m", "--step", "5m"]).await;
    assert_eq!(history["step_seconds"], 300);
    let text = run(&app, &["stats", "--history", "--tag", "a b"]).await.expect_success();
    assert!(text.contains(", every 1m\n"), "{text}");
}
