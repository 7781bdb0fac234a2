//! `waybill doctor`.

use super::start_quiet;
use crate::cli::{run, run_with};

#[tokio::test(flavor = "multi_thread")]
async fn problems_come_first_each_with_what_to_do() {
    let app = start_quiet().await;
    app.publish_tagged("reports").await;
    app.advance(120);
    // The database of tests does not write to the disk.
    let found = run(&app, &["doctor"]).await;
    let beginning = "\
problem  durability: a crash may lose acknowledged writes, or all: off is fsync
           Run ALTER SYSTEM SET fsync = on; SELECT pg_reload_conf();
warning  unserved tags: no worker asks for 1 tag: reports (1 waiting); waiting
         for 2 min
           Start workers for them (waybill work --tags reports), or look at
           waybill tags.
ok       postgresql: PostgreSQL ";
    assert!(found.stdout.starts_with(beginning), "{}", found.stdout);
    assert!(found.stdout.lines().all(|line| line.chars().count() <= 80), "{}", found.stdout);
    assert_eq!(found.expect_code(6), "waybill: 1 problem, 1 warning, 0 unknown\n");
    let refused = run(&app, &["doctor", "--json"]).await;
    let diagnosis: serde_json::Value = serde_json::from_str(&refused.stdout).expect("JSON");
    assert_eq!((refused.code, &diagnosis["status"]), (6, &serde_json::json!("problem")));
    let colored = run(&app, &["doctor", "--color", "always"]).await;
    assert!(colored.stdout.starts_with("\u{1b}[31mproblem\u{1b}[0m  durability"), "{}", colored.stdout);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_away_is_no_finding() {
    run_with("http://127.0.0.1:9", &[], &["doctor"], Vec::new()).await.expect_code(5);
}
