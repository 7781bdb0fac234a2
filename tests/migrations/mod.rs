//! The schema: it can be created and removed completely, does not affect other schemas, and refuses
//! invalid rows.

mod checks;
mod event_log;
mod locks;
mod outside;
mod sequences;
mod upgrade;

use std::process::Command;

use serde_json::json;
use waybill::store::connection::migrate::{migrate, revert_all};

use crate::support::{App, Options, database};

/// Returns the schema `waybill` as `pg_dump` writes it.
fn dump(url: &str) -> String {
    let program = database::cluster().bin_dir().join("pg_dump");
    let output = Command::new(program).args(["--schema-only", "--schema=waybill", url]).output().expect("pg_dump runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("a dump that is text");
    // Recent versions put a random token into each dump.
    text.lines().filter(|line| !line.starts_with('\\')).collect::<Vec<_>>().join("\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn up_down_and_up_again_gives_the_same_schema() {
    let url = database::empty().await;
    let ran = migrate(&url).await.expect("up");
    let first = dump(&url);
    assert!(first.contains("CREATE TABLE waybill.deliveries"), "{first}");
    revert_all(&url).await.expect("down");
    let left = "SELECT count(*) FROM pg_class WHERE relnamespace = 'waybill'::regnamespace \
                AND relname NOT LIKE '\\_\\_diesel%'";
    assert_eq!(database::count(&url, left).await, 0);
    let functions = "SELECT count(*) FROM pg_proc WHERE pronamespace = 'waybill'::regnamespace";
    assert_eq!(database::count(&url, functions).await, 0);
    assert_eq!(migrate(&url).await.expect("up again"), ran);
    assert_eq!(dump(&url), first);
}

#[tokio::test(flavor = "multi_thread")]
async fn migrating_again_runs_nothing() {
    let url = database::migrated().await;
    assert_eq!(migrate(&url).await.expect("up"), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_concurrent_migrations_one_runs_everything() {
    let url = database::empty().await;
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let url = url.clone();
        tasks.spawn(async move { migrate(&url).await.expect("up").len() });
    }
    let ran: Vec<usize> = tasks.join_all().await.into_iter().filter(|ran| *ran > 0).collect();
    let applied = database::count(&url, "SELECT count(*) FROM waybill.__diesel_schema_migrations").await;
    assert_eq!(ran, [applied as usize]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_applications_own_tables_and_migrations_are_not_changed() {
    let url = database::empty().await;
    let theirs = "CREATE TABLE public.__diesel_schema_migrations (version varchar(50) PRIMARY KEY, run_on timestamp); \
                  INSERT INTO public.__diesel_schema_migrations VALUES ('20200101000000', now()); \
                  CREATE TABLE public.events (id int); CREATE TABLE public.deliveries (id int); \
                  CREATE TABLE public.ready (id int); CREATE TABLE public.event_log (id int)";
    database::execute(&url, theirs).await;
    let app = App::start_with(Options { url: Some(url.clone()), ..Options::default() }).await;
    let id = app.publish(json!({"title": "t", "tags": "a", "ordering_key": "k"})).await;
    app.claim("a", "w:1").await.expect("an event");
    app.complete(id, "w:1").await.expect(200);
    app.stop().await;
    revert_all(&url).await.expect("down");
    assert_eq!(database::count(&url, "SELECT count(*) FROM public.__diesel_schema_migrations").await, 1);
    for table in ["events", "deliveries", "ready", "event_log"] {
        assert_eq!(database::count(&url, &format!("SELECT count(*) FROM public.{table}")).await, 0, "{table}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_on_a_schema_that_is_behind_is_not_ready() {
    let app = App::start().await;
    app.get("/ready").await.expect(200);
    let forget = "DELETE FROM waybill.__diesel_schema_migrations WHERE version = \
                  (SELECT max(version) FROM waybill.__diesel_schema_migrations)";
    database::execute(&app.url, forget).await;
    app.get("/ready").await.problem(503, "database_unavailable");
}
