//! `GET /logs`.

use chrono::DateTime;
use serde_json::{Value, json};
use waybill::background::log_summarizer;
use waybill::domain::ids::{EventId, NamespaceId};
use waybill::domain::scope::Scope;
use waybill::store::lists::log_entries::{LogFilter, list_log_entries};
use waybill::store::lists::pages::Page;

use crate::support::work::{entry_of, time};
use crate::support::{App, Options, database};

async fn list(app: &App, query: &str) -> Value {
    app.get(&format!("/logs{query}")).await.expect(200).json()
}

fn ids(page: &Value) -> Vec<i64> {
    page["logs"].as_array().expect("logs").iter().map(|entry| entry["id"].as_i64().expect("an id")).collect()
}

/// Returns the event, worker and action of each entry.
fn lines(page: &Value) -> Vec<(i64, &str, &str)> {
    let entries = page["logs"].as_array().expect("logs").iter();
    entries
        .map(|entry| {
            let text = |name: &str| entry[name].as_str().unwrap_or("");
            (entry["event_id"].as_i64().expect("an event"), text("worker_id"), text("action"))
        })
        .collect()
}

/// Follows cursors to the end; `query` starts with `?`. Returns the ids of each page.
async fn walk(app: &App, query: &str) -> Vec<Vec<i64>> {
    app.walk_ids(&format!("/logs{query}")).await
}

/// Publishes two events: ann fails the first, which then waits for its retry; bob picks, starts and
/// completes the second. All steps are ten seconds apart.
async fn with_two_events() -> (App, i64, i64) {
    let app = App::with_fixed_clock().await;
    let first = app.publish_tagged("one").await;
    let second = app.publish_tagged("two").await;
    app.claim("one", "ann:1").await.expect("an event");
    app.advance(10);
    app.claim("two", "bob:2").await.expect("an event");
    app.advance(10);
    app.fail(first, "ann:1").await.expect(200);
    app.advance(10);
    app.post(&format!("/events/{second}/start"), &json!({"worker_id": "bob:2"})).await.expect(200);
    app.advance(10);
    app.complete(second, "bob:2").await.expect(200);
    (app, first, second)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_lists_the_actions_of_all_events_in_order() {
    let (app, first, second) = with_two_events().await;
    let page = list(&app, "").await;
    let expected = [
        (first, "ann:1", "PICKED"),
        (second, "bob:2", "PICKED"),
        (first, "ann:1", "FAILED"),
        (second, "bob:2", "STARTED"),
        (second, "bob:2", "COMPLETED"),
    ];
    assert_eq!(lines(&page), expected);
    assert_eq!(page["next"], Value::Null);
    assert!(ids(&page).is_sorted());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_entry_is_the_same_in_the_log_and_in_the_response_to_the_worker() {
    let app = App::start().await;
    let id = app.publish_tagged("email").await;
    app.claim("email", "ann:1").await.expect("an event");
    let body = json!({"worker_id": "ann:1", "status_code": 500, "execution_time_ms": 7, "error_message": "no route"});
    let answer = app.post(&format!("/events/{id}/fail"), &body).await.expect(200).json();
    let mut entry = entry_of(&answer);
    entry.as_object_mut().expect("an object").remove("retry_scheduled");
    assert_eq!(list(&app, "?action=FAILED").await["logs"], json!([entry]));
}

#[tokio::test(flavor = "multi_thread")]
async fn entries_are_found_by_event_worker_and_action() {
    let (app, first, second) = with_two_events().await;
    let found = async |query: String| {
        let page = list(&app, &query).await;
        lines(&page).into_iter().map(|(event, _, action)| (event, action.to_owned())).collect::<Vec<_>>()
    };
    let entry = |event: i64, action: &str| (event, action.to_owned());
    assert_eq!(found(format!("?event_id={first}")).await, [entry(first, "PICKED"), entry(first, "FAILED")]);
    assert_eq!(found("?worker_id=ann:1".into()).await, [entry(first, "PICKED"), entry(first, "FAILED")]);
    assert_eq!(found("?action=PICKED".into()).await, [entry(first, "PICKED"), entry(second, "PICKED")]);
    assert_eq!(found("?action=PICKED&worker_id=bob:2".into()).await, [entry(second, "PICKED")]);
    assert_eq!(found(format!("?event_id={first}&worker_id=bob:2")).await, []);
    assert_eq!(found("?action=EXPIRED".into()).await, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn since_includes_entries_of_that_time() {
    let (app, ..) = with_two_events().await;
    let all = list(&app, "").await;
    let time = all["logs"][2]["created_at"].as_str().expect("a time").to_owned();
    assert_eq!(ids(&list(&app, &format!("?since={time}")).await), ids(&all)[2..]);
    assert_eq!(ids(&list(&app, &format!("?since={}", time.replace('Z', "%2B00:00"))).await), ids(&all)[2..]);
    assert_eq!(ids(&list(&app, &format!("?since={time}&worker_id=bob:2")).await), ids(&all)[3..]);
    assert_eq!(ids(&list(&app, "?since=2999-01-01T00:00:00Z").await), [0; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn until_leaves_out_entries_of_that_time() {
    let (app, first, _) = with_two_events().await;
    let all = list(&app, "").await;
    let time = |index: usize| all["logs"][index]["created_at"].as_str().expect("a time").to_owned();
    assert_eq!(ids(&list(&app, &format!("?until={}", time(2))).await), ids(&all)[..2]);
    assert_eq!(ids(&list(&app, &format!("?since={}&until={}", time(1), time(4))).await), ids(&all)[1..4]);
    assert_eq!(ids(&list(&app, &format!("?until={}&event_id={first}", time(2))).await), ids(&all)[..1]);
    assert_eq!(ids(&list(&app, "?until=2020-01-01T00:00:00Z").await), [0; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn cursors_lead_through_the_whole_log_with_nothing_skipped_or_repeated() {
    let (app, _, second) = with_two_events().await;
    let all = ids(&list(&app, "").await);
    for limit in [1, 2, 5, 500] {
        assert_eq!(walk(&app, &format!("?limit={limit}")).await.concat(), all, "limit {limit}");
        let of_second = walk(&app, &format!("?event_id={second}&limit={limit}")).await.concat();
        assert_eq!(of_second, [all[1], all[3], all[4]], "limit {limit}");
        let backwards: Vec<i64> = all.iter().rev().copied().collect();
        assert_eq!(walk(&app, &format!("?limit={limit}&order=desc")).await.concat(), backwards, "limit {limit}");
        let of_second = walk(&app, &format!("?event_id={second}&limit={limit}&order=desc")).await.concat();
        assert_eq!(of_second, [all[4], all[3], all[1]], "limit {limit}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_follows_the_log_gets_later_entries() {
    let app = App::start().await;
    app.publish_tagged("email").await;
    app.publish_tagged("email").await;
    app.claim("email", "ann:1").await.expect("an event");
    let cursor = list(&app, "?limit=1").await["next"].as_str().expect("a cursor").to_owned();
    assert_eq!(ids(&app.get_after("/logs", &cursor).await.expect(200).json()), [0; 0]);
    app.claim("email", "bob:2").await.expect("an event");
    let later = app.get_after("/logs", &cursor).await.expect(200).json();
    assert_eq!(lines(&later)[0].1, "bob:2");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_entry_is_found_behind_others_and_a_search_that_is_cut_short_says_how_far_it_got() {
    let flags = vec!["--list-scan-rows=500".to_owned()];
    let app = App::start_with(Options { flags, ..Options::default() }).await;
    // Entries 448 and 1792 are the last ones of windows: every 64th is a sample.
    let sql = "INSERT INTO waybill.event_log (id, event_id, action, worker_id, lease_id, attempt) \
               SELECT n, 1, (CASE WHEN n = 1900 THEN 'FAILED' WHEN n IN (448, 1792, 1901) THEN 'COMPLETED' ELSE 'PICKED' END)::waybill.action, \
                      CASE WHEN n IN (1900, 1901) THEN 'rare:1' ELSE 'ann:1' END, 1, 1 \
               FROM generate_series(1, 2200) AS n; SELECT setval('waybill.event_log_ids', 2200)";
    database::execute(&app.url, sql).await;
    let (failed, completed) = (1900, 1901);
    for (filter, found) in [
        ("worker_id=rare:1", vec![failed, completed]),
        ("action=FAILED", vec![failed]),
        ("action=FAILED&worker_id=rare:1", vec![failed]),
        ("action=COMPLETED&worker_id=rare:1", vec![completed]),
    ] {
        let backwards: Vec<i64> = found.iter().rev().copied().collect();
        assert_eq!(walk(&app, &format!("?{filter}")).await, [found], "{filter}");
        assert_eq!(walk(&app, &format!("?{filter}&order=desc")).await, [backwards], "{filter}");
    }
    // No index helps, so these searches take several pages, none of them full.
    for (filter, found) in [("action=COMPLETED", vec![448, 1792, 1901]), ("action=FAILED&event_id=1", vec![failed])] {
        let first = list(&app, &format!("?{filter}")).await;
        assert!(first["next"].is_string() && first["searched_to"].is_string(), "{first}");
        let pages = walk(&app, &format!("?{filter}")).await;
        assert!(pages.len() > 2, "{filter}: {pages:?}");
        assert_eq!(pages.concat(), found, "{filter}");
        let backwards: Vec<i64> = found.into_iter().rev().collect();
        assert_eq!(walk(&app, &format!("?{filter}&order=desc")).await.concat(), backwards, "{filter}");
    }
    for (query, count) in [("?worker_id=ann:1&limit=130", 2_198), ("?limit=70", 2_200)] {
        let all = walk(&app, query).await.concat();
        assert_eq!(all.len(), count, "{query}");
        assert!(all.is_sorted_by(|one, next| one < next));
        let backwards: Vec<i64> = all.into_iter().rev().collect();
        assert_eq!(walk(&app, &format!("{query}&order=desc")).await.concat(), backwards, "{query}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_search_in_the_log_says_how_far_it_got_in_both_orders() {
    let flags = vec!["--list-scan-rows=500".to_owned()];
    let app = App::start_with(Options { flags, ..Options::default() }).await;
    let begin = app.count("SELECT extract(epoch FROM now())::bigint").await - 3_000;
    let sql = format!(
        "INSERT INTO waybill.event_log (id, event_id, action, worker_id, lease_id, attempt, created_at) \
             SELECT n, 1, (CASE WHEN n IN (10, 700, 1500, 2190) THEN 'COMPLETED' ELSE 'PICKED' END)::waybill.action, \
                    'ann:1', 1, 1, to_timestamp({begin} + n) \
             FROM generate_series(1, 2200) AS n; SELECT setval('waybill.event_log_ids', 2200)"
    );
    database::execute(&app.url, &sql).await;
    // A page ends at the first sample behind 500 entries. Every 64th is one.
    for (order, wanted) in [
        ("asc", [(10, Some(640)), (700, Some(1280)), (1500, Some(1920)), (2190, None)]),
        ("desc", [(2190, Some(1600)), (1500, Some(960)), (700, Some(320)), (10, None)]),
    ] {
        let query = format!("/logs?action=COMPLETED&limit=100&order={order}");
        let mut page = app.get(&query).await.expect(200).json();
        for (found, searched_to) in wanted {
            let at = Some(&page["searched_to"]).filter(|at| !at.is_null()).map(time);
            assert_eq!(ids(&page), [found], "{order}");
            assert_eq!(at.map(|at| at.timestamp() - begin), searched_to, "{order}: {page}");
            assert_eq!(page["next"].is_string(), searched_to.is_some(), "{order}: {page}");
            if let Some(next) = page["next"].as_str() {
                page = app.get_after(&query, next).await.expect(200).json();
            }
        }
    }
}

/// An entry may have got its id up to a minute after its time, so the search begins a minute further away.
#[tokio::test(flavor = "multi_thread")]
async fn entries_are_found_by_their_time_however_many_were_written_within_a_minute_of_it() {
    let flags = vec!["--list-scan-rows=500".to_owned()];
    let app = App::start_with(Options { flags, ..Options::default() }).await;
    let begin = app.count("SELECT extract(epoch FROM now())::bigint").await - 1_000;
    let sql = format!(
        "INSERT INTO waybill.event_log (id, event_id, action, worker_id, lease_id, attempt, created_at) \
             SELECT n, 1, 'PICKED', 'ann:1', 1, 1, to_timestamp({begin}) + n * interval '20 milliseconds' \
             FROM generate_series(1, 4000) AS n; SELECT setval('waybill.event_log_ids', 4000)"
    );
    database::execute(&app.url, &sql).await;
    let time_of = |id: i64| {
        let time = DateTime::from_timestamp_millis(begin * 1_000 + id * 20).expect("a time");
        time.to_rfc3339_opts(chrono::SecondsFormat::Millis, true)
    };
    let late = list(&app, &format!("?since={}&limit=20", time_of(3_501))).await;
    assert_eq!(ids(&late), (3_501..3_521).collect::<Vec<i64>>());
    let early = list(&app, &format!("?until={}&limit=20&order=desc", time_of(500))).await;
    assert_eq!(ids(&early), (480..500).rev().collect::<Vec<i64>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_outlives_the_event() {
    let (app, first, _) = with_two_events().await;
    let before = list(&app, &format!("?event_id={first}")).await;
    let sql =
        format!("DELETE FROM waybill.deliveries WHERE id = {first}; DELETE FROM waybill.events WHERE id = {first}");
    database::execute(&app.url, &sql).await;
    app.get(&format!("/events/{first}")).await.problem(404, "event_not_found");
    assert_eq!(list(&app, &format!("?event_id={first}")).await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_spans_several_days() {
    let app = App::with_fixed_clock().await;
    for _ in 0..6 {
        app.publish_tagged("email").await;
        app.claim("email", "ann:1").await.expect("an event");
        app.advance(24 * 60 * 60);
    }
    let all = ids(&list(&app, "").await);
    assert_eq!(all.len(), 6);
    assert_eq!(walk(&app, "?limit=1").await.concat(), all);
    let backwards: Vec<i64> = all.into_iter().rev().collect();
    assert_eq!(walk(&app, "?limit=1&order=desc").await.concat(), backwards);
}

#[tokio::test(flavor = "multi_thread")]
async fn this_week_has_its_partition_before_the_first_request() {
    let app = App::start().await;
    let monday = "to_char(date_trunc('week', now() AT TIME ZONE 'UTC'), 'YYYYMMDD')";
    assert_eq!(app.count(&format!("SELECT count(to_regclass('waybill.event_log_' || {monday}))")).await, 1);
}

/// One entry in 10,000 belongs to the event, and the planner's statistics do not tell it where.
#[tokio::test(flavor = "multi_thread")]
async fn the_entries_of_an_event_and_the_first_page_are_read_cheaply_in_both_orders() {
    let app = App::start().await;
    let history = "INSERT INTO waybill.event_log (event_id, action, lease_id, attempt, created_at) \
                   SELECT CASE WHEN n % 10000 = 0 THEN 7 ELSE 8 END, 'PICKED', 1, 1, now() - n % 3 * interval '1 day' \
                   FROM generate_series(1, 50000) AS n; ANALYZE waybill.event_log";
    database::execute(&app.url, history).await;
    assert!(log_summarizer::run_once(app.engine()).await.expect("a round") > 0);
    let of_event = LogFilter { event_id: Some(EventId(7)), ..LogFilter::default() };
    let scope = Scope::new(NamespaceId::DEFAULT, None);
    for (filter, expected) in [(of_event, 5), (LogFilter::default(), 20)] {
        for descending in [false, true] {
            let page = Page { descending, after: None, limit: 20, scan: 500 };
            let list = async |conn: &mut _| list_log_entries(conn, &scope, &filter, page).await;
            let (found, buffers) = app.buffers_of_repeated(list).await;
            assert_eq!(found.entries.len(), expected);
            assert!(buffers < 100, "{buffers} buffers for {filter:?}, descending: {descending}");
        }
    }
}

/// With more entries than are read all at once.
#[tokio::test(flavor = "multi_thread")]
async fn a_time_before_the_first_year_is_not_an_error() {
    let app = App::start().await;
    let events = vec![json!({"title": "a job", "tags": "a"}); 150];
    app.post("/events/batch", &json!({"events": events})).await.expect(201);
    let claim = json!({"tags": ["a"], "worker_id": "w:1", "max": 150});
    let claimed = app.post("/events/claim", &claim).await.expect(200).json();
    assert_eq!(claimed["events"].as_array().expect("events").len(), 150);
    for order in ["asc", "desc"] {
        let page = list(&app, &format!("?worker_id=w:1&order={order}&until=0000-06-01T00:00:00Z")).await;
        assert_eq!((&page["logs"], &page["next"]), (&json!([]), &json!(null)), "{order}");
        let page = list(&app, &format!("?worker_id=w:1&order={order}&until=9999-12-31T23:59:59Z")).await;
        assert_eq!(ids(&page).len(), 100, "{order}");
    }
}
