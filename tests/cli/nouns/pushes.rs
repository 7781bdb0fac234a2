//! `waybill deliveries`, `waybill dead-letters` and `waybill operations`.

use serde_json::json;

use super::start_quiet;
use crate::cli::{json, run};
use crate::support::{App, Options};

/// Subscribes, and publishes so many events. Ids are 2, 4, …; those of their pushes 3, 5, ….
async fn publish(app: &App, events: usize) {
    app.subscribe("http://127.0.0.1:9/hook", json!({"event_types": ["t"], "max_attempts": 5})).await;
    for _ in 0..events {
        app.publish_typed("t", json!({"order": 17})).await;
    }
}

/// Returns the ids of all pushes, the newest first.
async fn pushes(app: &App) -> Vec<String> {
    let list = json(app, &["deliveries", "list"]).await;
    list["deliveries"].as_array().expect("pushes").iter().map(|push| push["id"].to_string()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn pushes_are_listed_given_up_and_replayed() {
    let app = start_quiet().await;
    publish(&app, 2).await;
    let ids = pushes(&app).await;
    let list = run(&app, &["deliveries", "list"]).await.expect_success();
    let rows = json(&app, &["deliveries", "list"]).await;
    let row = |at: usize| {
        format!(
            "{:>2}  {:>5}             1  PENDING  0/5    3h ago\n",
            ids[at],
            rows["deliveries"][at]["event_id"].to_string()
        )
    };
    assert_eq!(list, format!("ID  EVENT  SUBSCRIPTION  STATUS   TRIES  UPDATED  LAST ERROR\n{}{}", row(0), row(1)));
    let given_up = run(&app, &["deliveries", "dead-letter", &ids[0], "--reason", "it cannot be read"]).await;
    assert!(given_up.expect_success().contains("last error:    it cannot be read\n"));
    let letters = json(&app, &["dead-letters", "list", "--replayed", "false"]).await;
    let letter = letters["dead_letters"][0]["id"].to_string();
    let event = letters["dead_letters"][0]["event_id"].to_string();
    let list = run(&app, &["dead-letters", "list"]).await.expect_success();
    let expected = format!(
        "ID  EVENT  SUBSCRIPTION  CAUSE   GIVEN UP  REPLAYED  DETAIL\n\
         {letter:>2}  {event:>5}             1  manual  3h ago    no        it cannot be read\n"
    );
    assert_eq!(list, expected);
    let shown = run(&app, &["dead-letters", "show", &letter]).await.expect_success();
    assert!(shown.contains("payload:       {\"order\":17}\n"), "{shown}");
    let replayed = run(&app, &["dead-letters", "replay", &letter, "--reason", "it can now"]).await.expect_success();
    assert!(replayed.contains("replayed because:  it can now\n"), "{replayed}");
    run(&app, &["dead-letters", "replay", &letter]).await.expect_code(1);
    run(&app, &["dead-letters", "replay", &letter, "--dry-run"]).await.expect_code(2);
    let recent = json(&app, &["dead-letters", "list", "--since", "2h"]).await;
    assert_eq!(recent["dead_letters"].as_array().map(Vec::len), Some(0), "it was three hours ago");
    assert_eq!(
        json(&app, &["dead-letters", "list", "--since", "4h"]).await["dead_letters"][0]["id"].to_string(),
        letter
    );
    run(&app, &["deliveries", "list", "--since", "yesterday"]).await.expect_code(2);
    run(&app, &["dead-letters", "show", "99"]).await.expect_code(3);
    run(&app, &["deliveries", "show", "99"]).await.expect_code(3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_is_not_given_up_without_a_reason_and_the_help_says_so() {
    let app = start_quiet().await;
    let help = run(&app, &["deliveries", "dead-letter", "--help"]).await.expect_success();
    assert!(help.contains("Usage: waybill deliveries dead-letter [OPTIONS] --reason <TEXT> <ID>"), "{help}");
    let refused = run(&app, &["deliveries", "dead-letter", "17"]).await.expect_code(2);
    assert!(refused.contains("--reason <TEXT>"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_is_cancelled_and_retried_by_its_id() {
    let app = start_quiet().await;
    publish(&app, 1).await;
    let id = pushes(&app).await.remove(0);
    let cancelled = run(&app, &["deliveries", "cancel", &id, "--reason", "obsolete"]).await.expect_success();
    assert!(cancelled.contains("status:             CANCELLED\n") && cancelled.contains("obsolete"), "{cancelled}");
    let retried = run(&app, &["deliveries", "retry", &id]).await.expect_success();
    assert!(retried.contains("PENDING"), "{retried}");
    run(&app, &["deliveries", "retry", &id]).await.expect_code(1);
}

#[tokio::test(flavor = "multi_thread")]
async fn many_dead_letters_are_counted_replayed_and_followed() {
    // With the clock of the database, so that operations run.
    let flags = vec!["--dispatch=false".into()];
    let app = App::start_with(Options { flags, ..Options::default() }).await;
    publish(&app, 3).await;
    for id in pushes(&app).await {
        run(&app, &["deliveries", "dead-letter", &id, "--reason", "broken"]).await.expect_success();
    }
    let unasked = run(&app, &["dead-letters", "replay", "--all"]).await.expect_code(2);
    assert!(unasked.contains("add --yes, or --dry-run"), "{unasked}");
    let counted = run(&app, &["dead-letters", "replay", "--dry-run", "--cause", "manual"]).await.expect_success();
    assert!(counted.starts_with("3 dead letters would be replayed\n"), "{counted}");
    let none = run(&app, &["dead-letters", "replay", "--dry-run", "--cause", "expired"]).await.expect_success();
    assert!(none.starts_with("no dead letter would be replayed\n"), "{none}");
    let done =
        run(&app, &["dead-letters", "replay", "--all", "--yes", "--reason", "it is back"]).await.expect_success();
    assert!(done.ends_with("is COMPLETED: 3 done, 0 skipped, 0 failed\n"), "{done}");
    let cancelled = run(&app, &["deliveries", "cancel", "--yes", "--status", "PENDING"]).await.expect_success();
    assert!(cancelled.ends_with("is COMPLETED: 3 done, 0 skipped, 0 failed\n"), "{cancelled}");
    let operations = json(&app, &["operations", "list", "--status", "COMPLETED"]).await;
    let kinds: Vec<_> = operations["operations"].as_array().expect("operations").iter().map(|o| &o["kind"]).collect();
    assert_eq!(kinds, ["cancel_deliveries", "replay_dead_letters"]);
    let first = operations["operations"][1]["id"].to_string();
    let watched = run(&app, &["operations", "watch", &first]).await.expect_success();
    assert_eq!(watched, format!("operation {first} is COMPLETED: 3 done, 0 skipped, 0 failed\n"));
}

/// `waybill deliveries retry $ID --yes`, with an empty variable.
#[tokio::test(flavor = "multi_thread")]
async fn an_action_without_an_id_or_a_filter_selects_nothing() {
    let app = start_quiet().await;
    publish(&app, 1).await;
    for (command, nouns) in [
        (["deliveries", "retry"], "pushes"),
        (["deliveries", "cancel"], "pushes"),
        (["dead-letters", "replay"], "dead letters"),
    ] {
        let refused = run(&app, &[&command[..], &["--yes", "--no-wait"]].concat()).await.expect_code(2);
        let name = command.join(" ");
        let text = format!("waybill: which {nouns}? Give an id, a filter, or --all (see waybill {name} --help)\n");
        assert_eq!(refused, text);
        run(&app, &[&command[..], &["1", "--all", "--yes"]].concat()).await.expect_code(2);
    }
    assert_eq!(app.count("SELECT count(*) FROM waybill.operations").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operation_is_listed_shown_and_stopped() {
    let app = start_quiet().await;
    publish(&app, 1).await;
    let started = run(&app, &["deliveries", "cancel", "--all", "--yes", "--no-wait", "--reason", "obsolete"]).await;
    let started = started.expect_success();
    let id = json(&app, &["operations", "list"]).await["operations"][0]["id"].to_string();
    assert_eq!(started, format!("operation {id} has started; see: waybill operations show {id}\n"));
    let list = run(&app, &["operations", "list"]).await.expect_success();
    let expected = format!(
        "ID  KIND               STATUS   MATCHED  DONE  FAILED  CREATED  BY  REASON\n\
         {id:>2}  cancel_deliveries  RUNNING        1     0       0  3h ago       obsolete\n"
    );
    assert_eq!(list, expected);
    let stopped = run(&app, &["operations", "cancel", &id]).await.expect_success();
    assert!(stopped.contains("status:     CANCELLED\n"), "{stopped}");
    let watched = run(&app, &["operations", "watch", &id]).await.expect_code(6);
    assert_eq!(watched, "waybill: the operation ended as CANCELLED\n");
    run(&app, &["operations", "show", "99"]).await.expect_code(3);
}
