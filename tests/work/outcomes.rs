//! What becomes of an event, by what its program does.

use serde_json::{Value, json};

use super::{Working, publish, until_status};
use crate::support::process::waybill;
use crate::support::{App, ledger, until};

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_succeeds_completes_its_event_with_the_json_that_it_prints() {
    let app = App::start().await;
    let script = r#"printf '{"input": %s, "title": "%s", "attempt": %s, "id": %s, "by": "%s", "key": "%s"}' \
        "$(cat)" "$WAYBILL_TITLE" "$WAYBILL_ATTEMPT" "$WAYBILL_EVENT_ID" "$WAYBILL_TAGS" "$WAYBILL_ORDERING_KEY""#;
    let working = Working::start(&app.base, &["--concurrency", "2"], script);
    let body = r#"{"title": "a job", "tags": "a,b", "ordering_key": "k", "payload": {"n": 9007199254740993}}"#;
    let id = app.post_text("/events", body).await.expect(201).json()["id"].as_i64().expect("an id");
    until_status(&app, id, "COMPLETED").await;
    let event = app.get(&format!("/events/{id}")).await.expect(200).text;
    let result = format!(
        r#""result":{{"input": {{"n": 9007199254740993}}, "title": "a job", "attempt": 1, "id": {id}, "by": "a,b", "key": "k"}}"#
    );
    assert!(event.contains(&result), "{event}");
    let worker_id = app.event(id).await["logs"][0]["worker_id"].as_str().expect("a worker").to_owned();
    assert!(worker_id.ends_with(&format!(":{}", working.child.id())), "{worker_id}");
    working.stop().await;
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn output_that_is_no_json_or_too_long_is_no_result_and_blocks_nothing() {
    let app = App::start().await;
    let script =
        r#"case "$(cat)" in 1) echo "it is done";; 2) yes 1234567 | head -c 1000000; echo err >&2;; *) :;; esac"#;
    let working = Working::start(&app.base, &["--concurrency", "3"], script);
    for payload in 1..=3 {
        let id = publish(&app, json!(payload)).await;
        until_status(&app, id, "COMPLETED").await;
        assert_eq!(app.event(id).await["result"], Value::Null, "{payload}");
    }
    assert!(working.stderr().contains("printed more than 65536 bytes"), "{}", working.stderr());
    working.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_exit_status_says_whether_an_event_is_tried_again() {
    let app = App::start().await;
    let script = r#"input=$(cat); echo "first line" >&2; echo "gave up on $input" >&2
        if [ "$input" = 9 ]; then kill -9 $$; fi; exit "$input""#;
    let working = Working::start(&app.base, &["--concurrency", "4"], script);
    for (payload, status, error) in [
        (75, "PENDING", "exit status 75: gave up on 75\nfirst line"),
        (65, "FAILED", "exit status 65: gave up on 65\nfirst line"),
        (3, "PENDING", "exit status 3: gave up on 3\nfirst line"),
        (9, "PENDING", "killed by signal 9: gave up on 9\nfirst line"),
    ] {
        let id = publish(&app, json!(payload)).await;
        until("it has failed", async || app.event(id).await["retry_count"] == 1).await;
        let event = app.event(id).await;
        assert_eq!((&event["status"], &event["last_error"]), (&json!(status), &json!(error)), "{payload}");
        assert_eq!(event["next_retry_at"].is_string(), status == "PENDING", "{payload}");
    }
    working.stop().await;
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_leaves_others_behind_or_reads_nothing_still_ends() {
    let app = App::start().await;
    let working = Working::start(&app.base, &[], r#"sleep 30 & echo $! > "$FOLDER/left"; echo 17"#);
    let id = publish(&app, json!("x".repeat(500_000))).await;
    until_status(&app, id, "COMPLETED").await;
    let left = working.written("left").await;
    working.stop().await;
    let _ = nix::sys::signal::kill(
        nix::unistd::Pid::from_raw(left.parse().expect("a pid")),
        nix::sys::signal::Signal::SIGKILL,
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn progress_is_seen_while_the_program_runs() {
    let app = App::start().await;
    let script = r#"echo '{"done": 17}' > "$WAYBILL_PROGRESS_FILE"; echo "$WAYBILL_PROGRESS_FILE" > "$FOLDER/path"
        while [ ! -e "$FOLDER/go" ]; do sleep 0.05; done"#;
    let working = Working::start(&app.base, &[], script);
    let id = publish(&app, json!(1)).await;
    until("the progress is stored", async || app.event(id).await["progress"] == json!({"done": 17})).await;
    let path = working.written("path").await;
    working.allow("go");
    until_status(&app, id, "COMPLETED").await;
    working.stop().await;
    assert!(!std::path::Path::new(&path).exists(), "{path} is left behind");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_program_nothing_is_claimed() {
    let app = App::start().await;
    let id = publish(&app, json!(1)).await;
    for program in ["./no-such-program", "no-such-program", "/"] {
        let mut command = waybill(&["work", "--tags", "a", "--", program]);
        let output = command.env("WAYBILL_URL", &app.base).output().expect("it runs");
        assert_eq!(output.status.code(), Some(1));
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(stderr.contains(&format!("{program} is not a program that can be run")), "{stderr}");
    }
    assert_eq!(app.actions(id).await, [""; 0]);
}
