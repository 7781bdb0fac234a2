//! Signatures, verified by the libraries that receivers use and not by Waybill's own code.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::publish;
use crate::support::App;
use crate::support::receiver::{Receiver, Recorded};

/// The published libraries, each behind a script that prints whether it accepts a request.
const LIBRARIES: [(&str, &str); 2] = [(".venv/bin/python", "verify.py"), ("node", "verify.mjs")];

/// Returns whether a library accepts a request as signed with this secret.
fn is_accepted((program, script): (&str, &str), secret: &str, request: &Recorded) -> bool {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/reference");
    let program = if program.contains('/') { folder.join(program) } else { program.into() };
    let header = |name: &str| request.header(name).expect(name).to_owned();
    let names = ["webhook-id", "webhook-timestamp", "webhook-signature"];
    let headers: Value = names.iter().map(|name| ((*name).to_owned(), Value::from(header(name)))).collect();
    let input = json!({"secret": secret, "body": request.text(), "headers": headers}).to_string();
    let mut child = Command::new(&program)
        .arg(script)
        .current_dir(&folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{}: {error}; scripts/prepare --tests installs it", program.display()));
    child.stdin.take().expect("its input").write_all(input.as_bytes()).expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    let printed = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(printed.contains("verified") || printed.contains("refused"), "{script} says neither: {printed}");
    output.status.success()
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().expect(field)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_reference_libraries_accept_pushed_requests_and_no_altered_ones() {
    let (app, receiver) = (App::start().await, Receiver::start().await);
    let subscription = app.subscribe(&receiver.url("/hook"), json!({})).await;
    publish(&app, "order.paid", json!({"näme": "Zoë \u{1F600}", "n": 1.50})).await;
    let request = receiver.received(1).await.remove(0);
    let mut forged = request.clone();
    forged.body = request.text().replace('1', "2").into_bytes();
    let foreign = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    for library in LIBRARIES {
        assert!(is_accepted(library, text(&subscription, "secret"), &request), "{library:?}");
        assert!(!is_accepted(library, text(&subscription, "secret"), &forged), "{library:?}");
        assert!(!is_accepted(library, foreign, &request), "{library:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn during_a_secret_rotation_the_old_and_the_new_secret_are_both_accepted() {
    let (app, receiver) = (App::start().await, Receiver::start().await);
    let subscription = app.subscribe(&receiver.url("/hook"), json!({})).await;
    let path = format!("/subscriptions/{}/rotate-secret", subscription["id"]);
    let rotated = app.post(&path, &json!({"overlap_seconds": 3600})).await.expect(200).json();
    publish(&app, "order.paid", json!(1)).await;
    let request = receiver.received(1).await.remove(0);
    for library in LIBRARIES {
        assert!(is_accepted(library, text(&subscription, "secret"), &request), "the old secret: {library:?}");
        assert!(is_accepted(library, text(&rotated, "secret"), &request), "the new secret: {library:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_is_not_used_after_its_overlap_has_ended() {
    let (app, receiver) = (App::with_fixed_clock().await, Receiver::start().await);
    let subscription = app.subscribe(&receiver.url("/hook"), json!({})).await;
    let path = format!("/subscriptions/{}/rotate-secret", subscription["id"]);
    let rotated = app.post(&path, &json!({"overlap_seconds": 60})).await.expect(200).json();
    app.advance(61);
    publish(&app, "order.paid", json!(1)).await;
    let request = receiver.received(1).await.remove(0);
    for library in LIBRARIES {
        assert!(!is_accepted(library, text(&subscription, "secret"), &request), "the old secret: {library:?}");
        assert!(is_accepted(library, text(&rotated, "secret"), &request), "the new secret: {library:?}");
    }
}
