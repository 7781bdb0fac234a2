//! Where the trail of an event is looked for.

use std::collections::BTreeSet;

use diesel::QueryableByName;
use diesel::sql_types::{BigInt, Text};
use diesel_async::{AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};
use waybill::domain::ids::{EventId, NamespaceId};
use waybill::domain::scope::Scope;
use waybill::store::connection::connect::connect;
use waybill::store::connection::database::SETUP;
use waybill::store::lists::log_entries::{LogFilter, list_log_entries};
use waybill::store::lists::pages::Page;

use crate::retention::publish_completed;
use crate::support::{App, database};

/// The weeks of a year, each with entries of another event, which has left.
const WEEKS: &str = "
    SELECT waybill.create_event_log_partition((now() - n * interval '1 week')::date) FROM generate_series(2, 53) n;
    INSERT INTO waybill.event_log (event_id, lease_id, attempt, action, worker_id, created_at)
        SELECT 999999, n, 1, action::waybill.action, 'host:1', now() - n * interval '1 week'
        FROM generate_series(53, 2, -1) n, (VALUES ('PICKED'), ('FAILED'), ('COMPLETED')) a(action)";

/// An event whose log entries are left.
const LEFT: i64 = 999_999;

/// The statements that read the trail of an event or of a push.
const STATEMENTS: [(&str, &str); 7] = [
    (include_str!("../../src/store/sql/logs_of_event.sql"), "entries of an event"),
    (include_str!("../../src/store/sql/latest_logs_of_event.sql"), "latest entries of an event"),
    (include_str!("../../src/store/sql/count_earlier_logs.sql"), "number of entries of an event"),
    (include_str!("../../src/store/sql/find_settlement.sql"), "settlement of a claim"),
    (include_str!("../../src/store/sql/find_log_entry.sql"), "entry of a claim"),
    (include_str!("../../src/store/sql/find_push_settlement.sql"), "settlement of a push"),
    (include_str!("../../src/store/sql/find_push_entry.sql"), "entry of a push"),
];

/// The most that a page of the entries of an event that has left may cost: two indexes of 54 weeks, which the planner
/// looks at, too.
const MOST_OF_LEFT: i64 = 1_000;

#[derive(QueryableByName)]
struct Line {
    #[diesel(sql_type = Text, column_name = "QUERY PLAN")]
    text: String,
}

#[derive(QueryableByName)]
struct Count {
    #[diesel(sql_type = BigInt)]
    n: i64,
}

/// Returns the tables of weeks in which a statement looks for an event.
async fn weeks_read(app: &App, statement: &str, id: i64) -> usize {
    let mut sql = statement.to_owned();
    for (name, value) in [
        (":namespace_id", "1"),
        (":event_id", &id.to_string()),
        (":delivery_id", "4711"),
        (":lease_id", "7"),
        (":action", "'COMPLETED'"),
        (":below", "9000000"),
        (":max_rows", "100"),
        (":most", "100"),
    ] {
        sql = sql.replace(name, value);
    }
    let mut conn = connect(&app.url, "SELECT 1").await.expect("the database answers");
    conn.batch_execute(SETUP).await.expect("settings");
    let explain = format!("EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) {sql}");
    let plan: Vec<Line> = diesel::sql_query(explain).load(&mut conn).await.expect("a plan");
    let scans = plan.iter().filter(|line| line.text.contains(" on event_log_2"));
    let read: BTreeSet<&str> = scans
        .filter(|line| !line.text.contains("never executed"))
        .filter_map(|line| line.text.split_once(" on event_log_")?.1.split(' ').next())
        .collect();
    read.len()
}

/// Returns the entries of a page of `/logs?event_id=…` and the number of weeks in which it looked for them.
async fn read_page(app: &App, id: i64, descending: bool) -> (Vec<i64>, i64) {
    const READ: &str = "SELECT count(*) AS n FROM pg_stat_xact_user_tables \
                        WHERE relname LIKE 'event\\_log\\_2%' AND coalesce(seq_scan, 0) + coalesce(idx_scan, 0) > 0";
    let read = async |conn: &mut AsyncPgConnection| {
        let found = list(conn, id, descending).await?;
        Ok((found, diesel::sql_query(READ).get_result::<Count>(conn).await?.n))
    };
    app.buffers_of(read).await.0
}

/// Returns the leases of a page of the entries of an event.
async fn list(conn: &mut AsyncPgConnection, id: i64, descending: bool) -> diesel::QueryResult<Vec<i64>> {
    let scope = Scope::new(NamespaceId::DEFAULT, None);
    let filter = LogFilter { event_id: Some(EventId(id)), ..LogFilter::default() };
    let page = Page { descending, after: None, limit: 20, scan: 10_000 };
    let found = list_log_entries(conn, &scope, &filter, page).await?;
    Ok(found.entries.iter().map(|entry| entry.lease_id.0).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_trail_of_a_new_event_is_not_looked_for_in_the_weeks_before_it() {
    let app = App::start().await;
    let id = publish_completed(&app, "a").await;
    database::execute(&app.url, WEEKS).await;
    for (statement, name) in STATEMENTS {
        let weeks = weeks_read(&app, statement, id).await;
        // This week and the next one, and on a Monday the last one.
        assert!((2..=3).contains(&weeks), "{name}: {weeks} weeks were read");
    }
    for descending in [false, true] {
        let (entries, weeks) = read_page(&app, id, descending).await;
        assert_eq!(entries.len(), 2, "descending: {descending}");
        assert!((2..=3).contains(&weeks), "descending: {descending}: {weeks} weeks were read");
    }
}

/// Nothing tells when it was published.
#[tokio::test(flavor = "multi_thread")]
async fn the_trail_of_an_event_that_has_left_is_looked_for_in_all_weeks_at_a_bounded_cost() {
    let app = App::start().await;
    database::execute(&app.url, WEEKS).await;
    database::execute(&app.url, "VACUUM ANALYZE waybill.event_log").await;
    let weeks = app.count("SELECT count(*) FROM pg_class WHERE relname ~ '^event_log_2[0-9]{7}$'").await;
    assert!((54..=55).contains(&weeks), "{weeks} weeks");
    for (statement, name) in STATEMENTS {
        assert_eq!(weeks_read(&app, statement, LEFT).await, weeks as usize, "{name}");
    }
    // Of each week three entries, the oldest first.
    let of_weeks =
        |weeks: std::ops::RangeInclusive<i64>| weeks.flat_map(|week| [week; 3]).take(20).collect::<Vec<i64>>();
    let oldest: Vec<i64> = of_weeks(0..=6).into_iter().map(|week| 53 - week).collect();
    let newest = of_weeks(2..=8);
    for (descending, wanted) in [(false, oldest), (true, newest)] {
        assert_eq!(read_page(&app, LEFT, descending).await, (wanted, weeks), "descending: {descending}");
        let (_, buffers) = app.buffers_of_repeated(async |conn| list(conn, LEFT, descending).await).await;
        println!("an event that has left, descending: {descending}: {buffers} buffers");
        assert!(buffers <= MOST_OF_LEFT, "descending: {descending}: {buffers} buffers");
    }
}
