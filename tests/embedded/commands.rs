//! `waybill migrate`, and unknown sub-commands.

use super::{run, start, waybill};
use crate::support::{ClusterDir, database};

#[tokio::test(flavor = "multi_thread")]
async fn migrate_brings_a_database_up_to_date_and_then_reports_that_it_is() {
    let url = database::empty().await;
    let migrate = || {
        let mut command = waybill(&["migrate"]);
        command.env("DATABASE_URL", &url);
        run(command)
    };
    let (ended, stdout) = migrate();
    assert!(ended.status.success(), "{}", ended.stderr);
    let applied = database::count(&url, "SELECT count(*) FROM waybill.__diesel_schema_migrations").await;
    assert_eq!(stdout, format!("{applied} migrations ran\n"));
    let (ended, stdout) = migrate();
    assert!(ended.status.success(), "{}", ended.stderr);
    assert_eq!(stdout, "the schema is up to date\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn migrate_without_a_database_url_migrates_the_embedded_database() {
    let cluster_dir = ClusterDir::with_cluster();
    let mut command = waybill(&["migrate", "--data-dir"]);
    command.arg(cluster_dir.data_dir());
    let (ended, stdout) = run(command);
    assert!(ended.status.success(), "{}", ended.stderr);
    assert!(stdout.ends_with(" migrations ran\n"), "{stdout}");
    assert_eq!(cluster_dir.postmaster(), None, "PostgreSQL is stopped afterwards");
    let server = start(&cluster_dir);
    assert!(!server.stderr().contains("brought up to date"), "{}", server.stderr());
}

#[test]
fn an_unknown_sub_command_is_refused_with_a_hint() {
    let (ended, _) = run(waybill(&["sevre"]));
    assert_eq!(ended.status.code(), Some(2));
    assert!(ended.stderr.contains("'serve'"), "{}", ended.stderr);
}
