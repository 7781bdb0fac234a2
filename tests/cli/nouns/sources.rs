//! `waybill sources`.

use super::start_quiet;
use crate::cli::{json, run, run_with};

#[tokio::test(flavor = "multi_thread")]
async fn sources_are_made_listed_changed_and_deleted() {
    let app = start_quiet().await;
    let create = ["sources", "create", "--name", "our forms", "--scheme", "none", "--tags", "ci,forms"];
    let made = run(&app, &create).await.expect_success();
    let path = json(&app, &["sources", "show", "1"]).await["path"].as_str().expect("a path").to_owned();
    assert!(made.starts_with(&format!("source:    1\nname:      our forms\npath:      {path}\n")), "{made}");
    let list = run(&app, &["sources", "list"]).await.expect_success();
    let expected = "\
ID  NAME       VERIFIES  TAGS      STATE   REFUSED  LAST REFUSED
 1  our forms  none      ci,forms  active        0
";
    assert_eq!(list, expected);
    let changed = run(&app, &["sources", "update", "1", "--active", "false", "--event-type", "form.sent"]).await;
    let changed = changed.expect_success();
    assert!(
        changed.contains("state:            disabled\n") && changed.contains("{\"value\":\"form.sent\"}"),
        "{changed}"
    );
    assert_eq!(json(&app, &["sources", "list", "--active", "true"]).await["sources"].as_array().map(Vec::len), Some(0));
    run(&app, &["sources", "show", "99"]).await.expect_code(3);
    run(&app, &["sources", "delete", "1", "-y"]).await.expect_success();
    run(&app, &["sources", "show", "1"]).await.expect_code(3);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_secret_of_a_source_comes_from_a_file() {
    let app = start_quiet().await;
    let create =
        ["sources", "create", "--name", "ours", "--provider", "github", "--scheme", "github", "--secret-file", "-"];
    let made = run_with(&app.base, &[], &create, b"it is a secret\n".to_vec()).await.expect_success();
    assert!(made.contains("verifies:") && !made.contains("it is a secret"), "{made}");
    let rotate = ["sources", "rotate-secret", "1", "--secret-file", "-", "--overlap-seconds", "120"];
    let rotated = run_with(&app.base, &[], &rotate, b"another secret\n".to_vec()).await.expect_success();
    assert_eq!(rotated, "source 1 has a new secret; the old one is accepted for 2m\n");
    run(&app, &["sources", "rotate-secret", "1"]).await.expect_code(2);
}
