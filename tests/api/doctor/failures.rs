//! A check that cannot be made is unknown, and the others are made.

use diesel_async::SimpleAsyncConnection;
use serde_json::Value;

use super::assert_says;
use crate::support::{App, Options, database};

#[tokio::test(flavor = "multi_thread")]
async fn a_check_that_takes_too_long_is_unknown_and_the_others_are_made() {
    let app = App::start().await;
    let mut conn = database::connection(&app.url).await;
    conn.batch_execute("BEGIN; LOCK TABLE waybill.operations").await.expect("a lock");
    let operations = app.assert_check("operations", "unknown").await;
    assert!(operations["advice"].is_null());
    let diagnosis = app.get("/doctor").await.expect(200).json();
    let unknown: Vec<&Value> = diagnosis["checks"].as_array().expect("checks").iter().collect();
    let unknown: Vec<&Value> = unknown.into_iter().filter(|check| check["status"] == "unknown").collect();
    assert_eq!(unknown.len(), 1, "{unknown:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_whose_connections_are_all_in_use_says_so() {
    let app = App::start_with(Options { flags: vec!["--db-connections=1".into()], ..Options::default() }).await;
    let only = app.engine().database().connection().await.expect("the only connection");
    let diagnosis = app.get("/doctor").await.expect(200).json();
    let checks = diagnosis["checks"].as_array().expect("checks");
    let of = |name: &str| checks.iter().find(|check| check["name"] == name).unwrap_or_else(|| panic!("{name}"));
    assert_eq!(of("postgresql")["status"], "problem");
    assert_says(&of("postgresql")["summary"], "the database cannot be reached: ");
    assert_eq!(of("unserved_tags")["status"], "unknown");
    assert_eq!(of("retention")["status"], "ok", "it needs no database");
    drop(only);
    app.assert_check("postgresql", "ok").await;
}

/// Returns the URL of a database for a role that owns it and may do nothing else, and the URL for its administrator.
async fn of_an_ordinary_role() -> (String, String) {
    let url = database::empty().await;
    let name = url.rsplit_once('/').expect("a database").1;
    let grants = format!("CREATE ROLE {name} LOGIN PASSWORD 'word'; ALTER DATABASE {name} OWNER TO {name}");
    database::execute(&url, &grants).await;
    let (_, place) = url.split_once('@').expect("an address");
    (format!("postgres://{name}:word@{place}"), url)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_role_of_the_server_may_not_see_is_unknown() {
    let (ordinary, admin) = of_an_ordinary_role().await;
    let app = App::start_with(Options { url: Some(ordinary), ..Options::default() }).await;
    let mut conn = database::connection(&admin).await;
    conn.batch_execute("SELECT 1").await.expect("a session of another role");
    let transactions = app.assert_check("transactions", "unknown").await;
    assert_says(&transactions["summary"], "of other roles cannot be looked at");
    assert_says(&transactions["advice"], "GRANT pg_read_all_stats TO test_");
    app.assert_check("connections", "ok").await;

    conn.batch_execute("REVOKE SELECT ON pg_stat_activity FROM PUBLIC").await.expect("no more rights");
    for name in ["transactions", "connections"] {
        assert_says(&app.assert_check(name, "unknown").await["summary"], "permission denied");
    }
    app.assert_check("indexes", "ok").await;
}
