//! Namespaces take turns, and a step that takes too long is cancelled.

use diesel_async::SimpleAsyncConnection;
use waybill::background::retention::events::run_once;
use waybill::domain::retention::Retention;

use super::{old_events, publish_completed};
use crate::support::retention::DAY;
use crate::support::{App, database, until};

const HOUR: Retention = Retention::Seconds(3_600);

/// Runs a function of the database before each row of `waybill.events` that is deleted and fits the condition.
async fn before_deletes(app: &App, condition: &str, body: &str) {
    before_deletes_of(app, "events", condition, body).await;
}

async fn before_deletes_of(app: &App, table: &str, condition: &str, body: &str) {
    let sql = format!(
        "CREATE FUNCTION waybill.before_delete() RETURNS trigger LANGUAGE plpgsql AS
             $$BEGIN {body}; RETURN OLD; END$$;
         CREATE TRIGGER before_delete BEFORE DELETE ON waybill.{table} FOR EACH ROW
             WHEN ({condition}) EXECUTE FUNCTION waybill.before_delete()"
    );
    database::execute(&app.url, &sql).await;
}

/// Of events that are just old enough only the search knows, and the front reaches those that are a day older first.
#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_whose_events_cannot_be_removed_stops_no_other_one_and_shows_in_the_lag() {
    for age in [30 * DAY + 1, 31 * DAY] {
        let app = App::with_fixed_clock().await;
        let other = app.namespace("other").await;
        let (stuck, free) = (publish_completed(&app, "a").await, publish_completed(&other, "a").await);
        before_deletes(&app, "OLD.namespace_id = 1", "RAISE EXCEPTION 'refused'").await;
        app.advance(age);
        let error = run_once(app.engine(), Retention::days(30)).await.expect_err("one namespace failed");
        assert!(error.to_string().contains("refused"), "{error}");
        assert!(app.has_event(stuck).await && !other.has_event(free).await);
        assert!(app.retention_lag("events").await > 0.0);
        database::execute(&app.url, "DROP FUNCTION waybill.before_delete() CASCADE").await;
        assert_eq!(run_once(app.engine(), Retention::days(30)).await.expect("a round")["events"], 1);
        assert_eq!(app.retention_lag("events").await, 0.0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backlog_of_one_namespace_does_not_keep_others_waiting() {
    let app = App::with_fixed_clock().await;
    let other = app.namespace("other").await;
    publish_completed(&other, "a").await;
    let age = "UPDATE waybill.events SET created_at = created_at - interval '1 day';
               UPDATE waybill.deliveries SET updated_at = updated_at - interval '1 day';
               CREATE TABLE waybill.left_then (events bigint)";
    database::execute(&app.url, age).await;
    database::execute(&app.url, &old_events(10_000)).await;
    let left = "INSERT INTO waybill.left_then SELECT count(*) FROM waybill.events WHERE namespace_id = 1";
    before_deletes(&app, "OLD.namespace_id <> 1", left).await;
    assert_eq!(run_once(app.engine(), HOUR).await.expect("a round")["events"], 10_001);
    assert!(app.count("SELECT events FROM waybill.left_then").await > 0, "it had its turn before the end");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_that_takes_too_long_is_cancelled_and_done_again_with_fewer_rows() {
    let app = App::with_fixed_clock().await;
    database::execute(&app.url, &old_events(100)).await;
    slow_deletes_of(&app, "events").await;
    assert_eq!(run_once(app.engine(), HOUR).await.expect("a round")["events"], 100);
    assert_steps_are_small(&app).await;
    assert_eq!(app.orphans().await, 0);
}

/// The database notices a cancellation late if nothing looks for one any longer: it has already told what the step has
/// removed, and undoes it.
#[tokio::test(flavor = "multi_thread")]
async fn a_step_that_is_cancelled_at_its_very_end_has_removed_nothing() {
    let app = App::with_fixed_clock().await;
    database::execute(&app.url, &old_events(20)).await;
    let busy_end = "CREATE FUNCTION waybill.after_step() RETURNS trigger LANGUAGE plpgsql AS
            $$BEGIN
                RETURN (CASE WHEN sha512(repeat(repeat('x', 1000000), 60 + (random() * 0)::int)::bytea) IS NULL
                             THEN NULL::waybill.events END);
            END$$;
        CREATE TRIGGER z_after_step AFTER DELETE ON waybill.events FOR EACH STATEMENT
            EXECUTE FUNCTION waybill.after_step()";
    database::execute(&app.url, busy_end).await;
    assert_eq!(run_once(app.engine(), HOUR).await.expect("a round")["events"], 20);
    let metrics = app.get("/metrics").await.expect(200).text;
    assert!(metrics.contains("waybill_removed_rows_total{table=\"events\"} 20\n"), "{metrics}");
}

/// Lets each row of a table take 2.1 ms to delete.
async fn slow_deletes_of(app: &App, table: &str) {
    database::execute(&app.url, "CREATE TABLE waybill.deleted (step bigint)").await;
    // What a cancelled step writes is undone with it.
    let slow = "INSERT INTO waybill.deleted VALUES (txid_current()); PERFORM pg_sleep(0.0021)";
    before_deletes_of(app, table, "true", slow).await;
}

async fn assert_steps_are_small(app: &App) {
    let largest = "SELECT max(rows) FROM (SELECT count(*) AS rows FROM waybill.deleted GROUP BY step) steps";
    let largest = app.count(largest).await;
    assert!((1..25).contains(&largest), "25 rows take more than 50 ms, and {largest} were deleted at once");
}

/// Smaller steps would pay it more often, and be no shorter.
#[tokio::test(flavor = "multi_thread")]
async fn what_each_step_costs_whatever_its_size_does_not_make_steps_smaller() {
    let app = App::with_fixed_clock().await;
    database::execute(&app.url, &old_events(2_000)).await;
    let fixed_cost = "CREATE TABLE waybill.steps (step bigint);
        CREATE FUNCTION waybill.before_step() RETURNS trigger LANGUAGE plpgsql AS
            $$BEGIN INSERT INTO waybill.steps VALUES (txid_current()); PERFORM pg_sleep(0.015); RETURN NULL; END$$;
        CREATE TRIGGER before_step BEFORE DELETE ON waybill.events FOR EACH STATEMENT
            EXECUTE FUNCTION waybill.before_step()";
    database::execute(&app.url, fixed_cost).await;
    assert_eq!(run_once(app.engine(), HOUR).await.expect("a round")["events"], 2_000);
    // 20 of 100 events, and a few in which nothing was left.
    let steps = app.count("SELECT count(*) FROM waybill.steps").await;
    assert!((20..80).contains(&steps), "{steps} steps");
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_of_a_small_table_that_take_too_long_are_deleted_in_smaller_steps() {
    let app = App::with_fixed_clock().await;
    let old = "INSERT INTO waybill.workers (worker_id, first_seen_at, last_seen_at)
               SELECT 'w:' || n, now() - interval '1 year', now() - interval '1 year' FROM generate_series(1, 100) n";
    database::execute(&app.url, old).await;
    slow_deletes_of(&app, "workers").await;
    assert_eq!(app.remove_old().await["workers"], 100);
    assert_steps_are_small(&app).await;
}

/// The first step never ends on its own.
#[tokio::test(flavor = "multi_thread")]
async fn nobody_waits_for_the_locks_of_a_step_that_takes_too_long() {
    let app = App::with_fixed_clock().await;
    database::execute(&app.url, &old_events(100)).await;
    let mut holder = database::connection(&app.url).await;
    holder.batch_execute("CREATE SEQUENCE waybill.deletes; SELECT pg_advisory_lock(4711)").await.expect("a lock");
    let hold = "IF nextval('waybill.deletes') = 1 THEN PERFORM pg_advisory_xact_lock(4711); END IF";
    before_deletes(&app, "true", hold).await;
    let (removed, locked) = tokio::join!(run_once(app.engine(), HOUR), async {
        let has_begun = "SELECT count(*) FROM waybill.deletes WHERE is_called";
        until("a step is held up", async || app.count(has_begun).await == 1).await;
        let mut other = database::connection(&app.url).await;
        other.batch_execute("SET lock_timeout = '500ms'; SELECT FROM waybill.deliveries FOR UPDATE").await
    });
    locked.expect("no lock is held for long");
    // Rows that the other has locked at the time are left to the next round.
    let left = app.count("SELECT count(*) FROM waybill.events").await as usize;
    assert_eq!(removed.expect("a round")["events"] + left, 100);
    assert_eq!(run_once(app.engine(), HOUR).await.expect("a round").get("events").copied().unwrap_or_default(), left);
}
