//! The daily partitions of the event log.

use crate::support::{App, database};

const OLD_LINE: &str = "INSERT INTO waybill.event_log (event_id, delivery_id, action, lease_id, attempt, created_at) \
     VALUES (1, 1, 'PICKED', 1, 1, ";

#[tokio::test(flavor = "multi_thread")]
async fn a_partition_created_late_takes_its_rows_from_the_default_partition() {
    let url = database::migrated().await;
    for time in
        ["2020-02-28T23:59:59.999999Z", "2020-02-29T00:00:00Z", "2020-02-29T23:59:59.999999Z", "2020-03-01T00:00:00Z"]
    {
        database::execute(&url, &format!("{OLD_LINE} '{time}')")).await;
    }
    let prepare = "SELECT waybill.create_event_log_partition('2020-02-29')::int";
    assert_eq!(database::count(&url, prepare).await, 1);
    assert_eq!(database::count(&url, "SELECT count(*) FROM waybill.event_log_20200229").await, 2);
    assert_eq!(database::count(&url, "SELECT count(*) FROM waybill.event_log_default").await, 2);
    assert_eq!(database::count(&url, "SELECT count(*) FROM waybill.event_log").await, 4);
    assert_eq!(database::count(&url, prepare).await, 0, "the second time there is nothing to do");
}

#[tokio::test(flavor = "multi_thread")]
async fn partitions_are_days_of_utc_whatever_the_time_zone_of_the_session() {
    let url = database::migrated().await;
    let prepare = "SET TIME ZONE 'Pacific/Auckland'; SELECT waybill.create_event_log_partition('2020-02-29')";
    database::execute(&url, prepare).await;
    database::execute(&url, &format!("{OLD_LINE} '2020-02-29T00:00:00Z')")).await;
    assert_eq!(database::count(&url, "SELECT count(*) FROM waybill.event_log_20200229").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partition_has_the_constraints_of_the_log() {
    let url = database::migrated().await;
    database::execute(&url, "SELECT waybill.create_event_log_partition('2020-02-29')").await;
    let line = OLD_LINE.replace("PICKED", "EATEN");
    let refused = super::checks::violated(&url, &format!("{line} '2020-02-29T12:00:00Z')")).await;
    assert_eq!(refused, "event_log_action_is_known");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_creates_the_partitions_of_today_and_the_days_ahead() {
    let app = App::start().await;
    let prepared = "SELECT count(*) FROM generate_series(0, 2) AS ahead WHERE to_regclass('waybill.event_log_' || \
                    to_char((now() AT TIME ZONE 'UTC')::date + ahead, 'YYYYMMDD')) IS NOT NULL";
    assert_eq!(app.count(prepared).await, 3);
    app.publish_tagged("a").await;
    app.claim("a", "w:1").await.expect("an event");
    assert_eq!(app.count("SELECT count(*) FROM waybill.event_log").await, 1);
    assert_eq!(app.count("SELECT count(*) FROM waybill.event_log_default").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_can_create_the_same_partitions_at_once() {
    let url = database::migrated().await;
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let url = url.clone();
        tasks.spawn(async move {
            database::count(&url, "SELECT waybill.create_event_log_partition('2020-02-29')::int").await
        });
    }
    assert_eq!(tasks.join_all().await.iter().sum::<i64>(), 1);
}
