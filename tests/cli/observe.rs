//! `waybill workers`, `tags` and `stats`.

use serde_json::{Value, json};

use super::{json as run_json, run, run_as, start};
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

#[tokio::test(flavor = "multi_thread")]
async fn tables_of_tags_workers_and_figures_fit_80_columns() {
    let app = start().await;
    some_work(&app).await;
    assert_eq!(
        run(&app, &["tags"]).await.expect_success(),
        "\
TAG     WAITING  OLDEST  WORKERS  STATE
images        1      0s        1  ok
mail          1      0s        0  unserved
"
    );
    assert_eq!(
        run(&app, &["workers"]).await.expect_success(),
        format!(
            "\
WORKER          TAGS    HOLDING  EVENTS  LAST SEEN  STATE
{W1}  images        1  1       3h ago     ok
"
        )
    );
    assert_eq!(
        run(&app, &["stats"]).await.expect_success(),
        "\
waiting:         2
delayed:         0 (0 of them retrying)
blocked:         0
running:         1
failed:          0
oldest waiting:  event 2, 0s old
workers:         1
pushes pending:  0
breakers open:   0
dead letters:    0
per minute:      0.0 published, 0.0 claimed, 0.0 completed, 0.0 failed

TAG     WAITING  OLDEST  WORKERS  IN/MIN  DONE/MIN  STATE
images        1      0s        1     0.0       0.0  ok
mail          1      0s        0     0.0       0.0  unserved
"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_table_of_keys_fits_80_columns() {
    let app = start().await;
    let admin = run_json(&app, &["keys", "create", "--name", "ada"]).await["key"].as_str().expect("a key").to_owned();
    let create = ["keys", "create", "--name", "reports", "--scopes", "read,work", "--tags", "a"];
    run_as(&app, &admin, &create).await.expect_success();
    let listed = run_as(&app, &admin, &["keys", "list", "--json"]).await.expect_success();
    let listed: Value = serde_json::from_str(&listed).expect("JSON");
    let prefixes: Vec<String> = listed["keys"]
        .as_array()
        .expect("keys")
        .iter()
        .map(|key| key["prefix"].as_str().expect("a prefix").to_owned())
        .collect();
    let mut keys = run_as(&app, &admin, &["keys", "list"]).await.expect_success();
    for prefix in &prefixes {
        keys = keys.replace(prefix, &"*".repeat(prefix.len()));
    }
    let rows: Vec<&str> = keys.lines().collect();
    assert_eq!(rows[0], "ID  NAME     KEY         SCOPES     TAGS  STATE   LAST USED");
    // When the key of the caller was last used is recorded meanwhile.
    assert!(rows[1].starts_with(" 1  ada      *********…  admin      all   in use  "), "{keys}");
    assert_eq!(rows[2..], [" 2  reports  *********…  work,read  a     in use  never"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_table_of_the_audit_log_fits_80_columns() {
    let app = start().await;
    run(&app, &["namespaces", "create", "photos"]).await.expect_success();
    run(&app, &["sources", "create", "--name", "ours", "--scheme", "none"]).await.expect_success();
    assert_eq!(
        run(&app, &["audit", "list"]).await.expect_success(),
        "\
ID  WHEN    ACTION             ACTOR  ADDRESS    SUBJECT      DETAIL
 2  3h ago  source.created            127.0.0.1  source 1     {\"is_active\":true…
 1  3h ago  namespace.created         127.0.0.1  namespace 2  {\"name\":\"photos\",…
"
    );
}
