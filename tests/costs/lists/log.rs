//! What lists of log entries cost.

use chrono::{DateTime, Utc};
use waybill::domain::action::Action;
use waybill::domain::ids::{EventId, NamespaceId};
use waybill::domain::scope::Scope;
use waybill::store::lists::log_entries::{LogFilter, LogPage, list_log_entries};
use waybill::store::lists::pages::Page;

use super::{Ends, MOST, app, created_at, page, times};
use crate::support::App;

/// The most that a page of a time may cost that overlaps the tables of all weeks.
const MOST_OF_LONG_TIME: [i64; 2] = [250; 2];

async fn list_log(app: &App, filter: &LogFilter, page: Page) -> (LogPage, i64) {
    let scope = Scope::new(NamespaceId::DEFAULT, None);
    app.buffers_of_repeated(async |conn| list_log_entries(conn, &scope, filter, page).await).await
}

/// Returns a plain query of the ids of all entries that match.
fn matching(filter: &LogFilter) -> String {
    let text = |condition: &str, value: Option<String>| value.map(|value| format!(" AND {condition} '{value}'"));
    let time = |time: Option<DateTime<Utc>>| time.map(|time| time.to_rfc3339());
    let conditions = [
        text("event_id =", filter.event_id.map(|id| id.0.to_string())),
        text("worker_id =", filter.worker_id.clone()),
        text("action =", filter.action.map(|action| action.as_str().to_owned())),
        text("created_at >=", time(filter.since)),
        text("created_at <", time(filter.until)),
    ];
    let conditions: String = conditions.into_iter().flatten().collect();
    format!("SELECT id FROM waybill.event_log WHERE namespace_id = 1{conditions}")
}

/// Asserts that the first page of the log has the first entries that match, `wanted` in number, in both orders, and
/// within `MOST` buffers.
async fn finds_log(app: &App, name: &str, filter: &LogFilter, wanted: usize) {
    finds_log_within(app, name, filter, wanted, [MOST; 2]).await;
}

/// Does the same with a bound for each order.
async fn finds_log_within(app: &App, name: &str, filter: &LogFilter, wanted: usize, most: [i64; 2]) {
    let ends = Ends::of(app, &matching(filter)).await;
    for (descending, most) in [false, true].into_iter().zip(most) {
        let (found, buffers) = list_log(app, filter, page(descending)).await;
        let ids: Vec<i64> = found.entries.iter().map(|entry| entry.id).collect();
        println!("log, {name}, descending: {descending}: {buffers} buffers for {} entries", ids.len());
        assert_eq!((ids.as_slice(), ids.len()), (ends.page(descending), wanted), "{name}, descending: {descending}");
        assert_eq!(found.searched_to, None, "{name}");
        assert!(buffers <= most, "{name}, descending: {descending}: {buffers} buffers");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn log_entries_are_found_by_worker_action_and_time_wherever_they_lie_and_however_few() {
    let app = app().await;
    let any = LogFilter::default;
    let by_worker = |word: &str| LogFilter { worker_id: Some(format!("{word}:1")), ..any() };
    let by_action = |action: Action| LogFilter { action: Some(action), ..any() };
    finds_log(&app, "all", &any(), 20).await;
    for (word, action, wanted) in [
        ("first", Action::Released, 15),
        ("last", Action::Reset, 15),
        ("few", Action::Started, 3),
        ("none", Action::Retried, 0),
    ] {
        finds_log(&app, &format!("action {word}"), &by_action(action), wanted).await;
        finds_log(&app, &format!("worker {word}"), &by_worker(word), (wanted * 3).min(20)).await;
        let both = LogFilter { action: Some(action), ..by_worker(word) };
        finds_log(&app, &format!("worker and action {word}"), &both, wanted).await;
        let both = LogFilter { action: Some(Action::Picked), ..by_worker(word) };
        finds_log(&app, &format!("worker {word} and a common action"), &both, wanted).await;
    }
    finds_log(&app, "common worker", &LogFilter { worker_id: Some("host:7".into()), ..any() }, 20).await;
    finds_log(&app, "event", &LogFilter { event_id: Some(EventId(500_001)), ..any() }, 2).await;
    for action in [Action::Picked, Action::Completed] {
        finds_log(&app, "common action", &by_action(action), 20).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn log_entries_are_found_by_time_wherever_it_lies_alone_and_with_a_worker_or_an_action() {
    let app = app().await;
    for (name, [since, until], events) in times(&app).await {
        let by_time = LogFilter { since, until, ..LogFilter::default() };
        // Two entries per event, three of the first and the last ones and of every 50,000th, up to 3 seconds later.
        let (all, of_worker, by_action) = match name {
            "time first" => (20, 20, [15, 14, 14, 0]),
            "time last" => (20, 20, [15, 16, 0, 15]),
            "time between" => (7, 0, [3, 3, 0, 0]),
            _ => (0, 0, [0; 4]),
        };
        finds_log(&app, name, &by_time, all).await;
        let word = if events.contains(&1) { "first:1" } else { "last:1" };
        for (worker, wanted) in [(word, of_worker), ("early:1", 0)] {
            let by_worker = LogFilter { worker_id: Some(worker.to_owned()), ..by_time.clone() };
            finds_log(&app, &format!("{name}, and the worker {worker}"), &by_worker, wanted).await;
        }
        let actions = [Action::Picked, Action::Completed, Action::Released, Action::Reset];
        for (action, wanted) in actions.into_iter().zip(by_action) {
            let by_action = LogFilter { action: Some(action), ..by_time.clone() };
            finds_log(&app, &format!("{name}, and {}", action.as_str()), &by_action, wanted).await;
        }
    }
    let (since, until) = (Some(created_at(&app, 400_000).await), Some(created_at(&app, 600_000).await));
    let long = LogFilter { since, until, ..LogFilter::default() };
    finds_log_within(&app, "long time", &long, 20, MOST_OF_LONG_TIME).await;
    for (name, worker) in [("a common", "host:7"), ("a former", "early:1"), ("a later", "late:1"), ("no", "none:1")] {
        let by_worker = LogFilter { worker_id: Some(worker.to_owned()), ..long.clone() };
        let wanted = if name == "a common" { 20 } else { 0 };
        finds_log_within(&app, &format!("long time, and {name} worker"), &by_worker, wanted, MOST_OF_LONG_TIME).await;
    }
    for (action, wanted) in [(Action::Picked, 20), (Action::Completed, 20), (Action::Failed, 4), (Action::Reset, 0)] {
        let by_action = LogFilter { action: Some(action), ..long.clone() };
        let name = format!("long time, and {}", action.as_str());
        finds_log_within(&app, &name, &by_action, wanted, MOST_OF_LONG_TIME).await;
    }
}

/// A worker with many entries, none of them among the last. Its newest ones are looked for in parts of the log.
#[tokio::test(flavor = "multi_thread")]
async fn the_newest_entries_of_a_worker_that_left_long_ago_are_found_at_a_bounded_cost() {
    let app = app().await;
    for worker in ["early:1", "late:1"] {
        let filter = LogFilter { worker_id: Some(worker.to_owned()), ..LogFilter::default() };
        finds_log_within(&app, worker, &filter, 20, [MOST, 1_700]).await;
    }
}
