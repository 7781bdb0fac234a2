//! Where the trail of an event is looked for.

use diesel::QueryableByName;
use diesel::sql_types::Text;
use diesel_async::{RunQueryDsl, SimpleAsyncConnection};
use waybill::store::connection::connect::connect;
use waybill::store::connection::database::SETUP;

use crate::retention::publish_completed;
use crate::support::{App, database};

/// The weeks of a year, each with entries of another event.
const WEEKS: &str = "
    SELECT waybill.create_event_log_partition((now() - n * interval '1 week')::date) FROM generate_series(2, 53) n;
    INSERT INTO waybill.event_log (event_id, lease_id, attempt, action, created_at)
        SELECT 999999, n, 1, action::waybill.action, now() - n * interval '1 week'
        FROM generate_series(2, 53) n, (VALUES ('PICKED'), ('FAILED'), ('COMPLETED')) a(action)";

/// The statements that read the trail of an event, each with its parameters.
const STATEMENTS: [(&str, &str); 2] = [
    (include_str!("../../src/store/sql/logs_of_event.sql"), "entries of an event"),
    (include_str!("../../src/store/sql/latest_logs_of_event.sql"), "latest entries of an event"),
];

#[derive(QueryableByName)]
struct Line {
    #[diesel(sql_type = Text, column_name = "QUERY PLAN")]
    text: String,
}

/// Returns the tables of weeks in which a statement looks for an event.
async fn weeks_read(app: &App, statement: &str, id: i64) -> usize {
    let mut sql = statement.to_owned();
    for (name, value) in [(":namespace_id", "1"), (":event_id", &id.to_string()), (":max_rows", "100")] {
        sql = sql.replace(name, value);
    }
    let mut conn = connect(&app.url, "SELECT 1").await.expect("the database answers");
    conn.batch_execute(SETUP).await.expect("settings");
    let explain = format!("EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) {sql}");
    let plan: Vec<Line> = diesel::sql_query(explain).load(&mut conn).await.expect("a plan");
    let scans = plan.iter().filter(|line| line.text.contains(" on event_log_2"));
    let read: std::collections::BTreeSet<&str> = scans
        .filter(|line| !line.text.contains("never executed"))
        .filter_map(|line| line.text.split_once(" on event_log_")?.1.split(' ').next())
        .collect();
    read.len()
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
}
