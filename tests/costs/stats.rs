//! What stats cost, in buffers: the present state among a million events, and the history of a full week of minutes and a
//! full year of hours.

use chrono::{TimeDelta, Utc};
use waybill::domain::ids::NamespaceId;
use waybill::domain::scope::Scope;
use waybill::domain::stats::window::{StatsWindow, Step};
use waybill::store::lists::pages::NamePage;
use waybill::store::lists::stats::{
    StatsCaps, read_recent_counts, read_stats, read_stats_history, read_stats_latencies, read_tag,
};
use waybill::store::lists::tags::list_tags;

use super::lists;
use crate::support::{App, database};

/// The most that `GET /stats` may cost, whatever there is.
const MOST_NOW: i64 = 300;

/// The same for one tag.
const MOST_OF_TAG: i64 = 150;

fn scope(namespace: i32) -> Scope {
    Scope::new(NamespaceId(namespace), None)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_present_state_is_read_at_a_bounded_cost_among_a_million_events() {
    let app = lists::app().await;
    let caps = StatsCaps { waiting: 10_000, others: 1_000, stale_seconds: 30.0 };
    // Almost all events of the first namespace are completed, those of the third wait, and the second has none.
    for (namespace, waiting) in [(1, 0), (2, 0), (3, 10_001)] {
        let scope = scope(namespace);
        let (now, buffers) = app.buffers_of_repeated(async |conn| read_stats(conn, &scope, caps).await).await;
        assert_eq!(now.waiting, waiting);
        let page = NamePage { descending: false, after: None, limit: 101 };
        let (tags, of_tags) = app.buffers_of_repeated(async |conn| list_tags(conn, &scope, &page, 1_000).await).await;
        let names: Vec<&str> = tags.iter().map(|row| row.tag.as_str()).chain([""]).collect();
        let since = Utc::now() - TimeDelta::minutes(5);
        let counts = async |conn: &mut _| read_recent_counts(conn, &scope, &names, since).await;
        let (_, of_rates) = app.buffers_of_repeated(counts).await;
        println!("namespace {namespace}: {buffers} + {of_tags} + {of_rates} buffers");
        assert!(buffers + of_tags + of_rates <= MOST_NOW, "{buffers} + {of_tags} + {of_rates} buffers");
        let (tag, buffers) = app.buffers_of_repeated(async |conn| read_tag(conn, &scope, "many", 10_000).await).await;
        println!("namespace {namespace}, one tag: {buffers} buffers");
        assert_eq!(tag.waiting, waiting);
        assert!(buffers <= MOST_OF_TAG, "{buffers} buffers");
    }
}

/// A week of minutes and a year of hours of three servers, for a namespace and nine tags.
const FULL_HISTORY: &str = "
    INSERT INTO waybill.stats_minutes
    SELECT date_trunc('minute', now()) - n * interval '1 minute', s, 1, 6, 10, 10, 10, 0, 0, 0, 0, 0, 0, 0, 0, t,
           '{30,31,32,33,40}', '{5,2,1,1,1}'
    FROM generate_series(0, 10079) n, generate_series(1, 3) s, unnest('{\"\",a,b,c,d,e,f,g,h,i}'::text[]) t
    ORDER BY n DESC, s, t;
    INSERT INTO waybill.stats_hours
    SELECT date_trunc('hour', now()) - n * interval '1 hour', s, 1, 6, 600, 600, 600, 0, 0, 0, 0, 0, 0, 0, 0, t,
           '{28,29,30,31,32,33,36,40}', '{200,100,100,100,60,30,5,5}'
    FROM generate_series(0, 8759) n, generate_series(1, 3) s, unnest('{\"\",a,b,c,d,e,f,g,h,i}'::text[]) t
    ORDER BY n DESC, s, t;
";

#[tokio::test(flavor = "multi_thread")]
async fn the_last_hour_day_week_and_year_are_each_read_at_a_bounded_cost() {
    let app = App::with_fixed_clock().await;
    database::execute(&app.url, FULL_HISTORY).await;
    let (scope, now) = (scope(1), Utc::now());
    // The statistics are those of empty tables at first.
    for state in ["believed empty", "analyzed"] {
        for (days, step, most) in
            [(1.0 / 24.0, "1m", 120), (1.0, "10m", 2_500), (7.0, "1h", 350), (364.0, "1d", 15_000)]
        {
            let from = now - TimeDelta::seconds((days * 86_400.0) as i64);
            let window = StatsWindow::new(from, now, Step::parse(step), now).expect("a window");
            for tag in ["", "e"] {
                let (points, counts) =
                    app.buffers_of_repeated(async |conn| read_stats_history(conn, &scope, tag, &window).await).await;
                assert!(points.len() >= window.points.clone().count() - 1, "{} points", points.len());
                let (_, latencies) =
                    app.buffers_of_repeated(async |conn| read_stats_latencies(conn, &scope, tag, &window).await).await;
                println!("{days} days by {step}, tag {tag:?}, {state}: {counts} and {latencies} buffers");
                assert!(counts <= most && latencies <= most, "{days} days by {step}: {counts} and {latencies} buffers");
            }
        }
        database::execute(&app.url, "ANALYZE waybill.stats_minutes, waybill.stats_hours").await;
    }
}
