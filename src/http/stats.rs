//! `/stats`: the state of a namespace in numbers, now and as it was.

use std::collections::BTreeMap;

use actix_web::web::Data;
use actix_web::{HttpRequest, HttpResponse};
use chrono::{DateTime, TimeDelta, Utc};
use serde::Serialize;

use super::operate::STALE_SECONDS;
use super::query::read_query;
use super::view::{Timestamp, timestamp};
use crate::domain::ids::EventId;
use crate::domain::limits;
use crate::domain::scope::Scope;
use crate::domain::stats::latency::percentile;
use crate::domain::stats::window::{StatsWindow, Step, parse_time};
use crate::domain::stats::{Counter, Metric};
use crate::domain::{tags, text};
use crate::engine::Engine;
use crate::error::Error;
use crate::store::lists::pages::NamePage;
use crate::store::lists::stats::{
    RecentCounts, StatsCaps, StatsNow, read_recent_counts, read_stats, read_stats_history, read_stats_latencies,
    read_tag,
};
use crate::store::lists::tags::{TagRow, list_tags};

/// Waiting events, of a namespace and of a tag that is asked for, are counted up to this number.
const WAITING_CAP: i64 = 10_000;

/// Everything else is counted up to this number.
const COUNT_CAP: i64 = 1_000;

/// The maximum number of tags in one response.
const MAX_TAGS: usize = 100;

/// The number of minutes, in addition to the present one, over which rates are averages.
const RATE_MINUTES: i64 = 5;

#[derive(Serialize)]
pub(super) struct StatsView {
    pub(super) at: Timestamp,
    pub(super) waiting: i64,
    pub(super) waiting_is_exact: bool,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub(super) namespace: Option<NamespaceStats>,
    pub(super) tags: Vec<TagStats>,
}

/// What is not about tags.
#[derive(Serialize)]
#[expect(clippy::struct_excessive_bools, reason = "each count says whether it is exact")]
pub(super) struct NamespaceStats {
    pub(super) delayed: i64,
    pub(super) retrying: i64,
    pub(super) blocked: i64,
    pub(super) delayed_is_exact: bool,
    pub(super) running: i64,
    pub(super) running_is_exact: bool,
    pub(super) failed: i64,
    pub(super) failed_is_exact: bool,
    pub(super) oldest_event: Option<OldestEvent>,
    pub(super) workers: i64,
    pub(super) stale_workers: i64,
    pub(super) unserved_tags: usize,
    pub(super) pushes_pending: i64,
    pub(super) pushes_pending_is_exact: bool,
    pub(super) breakers_open: i64,
    pub(super) dead_letters: i64,
    pub(super) dead_letters_is_exact: bool,
    pub(super) per_minute: NamespaceRates,
    pub(super) tags_are_complete: bool,
}

#[derive(Serialize)]
pub(super) struct OldestEvent {
    pub(super) id: EventId,
    pub(super) created_at: Option<Timestamp>,
    pub(super) age_seconds: Option<f64>,
}

#[derive(Serialize)]
pub(super) struct NamespaceRates {
    pub(super) published: f64,
    pub(super) claimed: f64,
    pub(super) completed: f64,
    pub(super) failed: f64,
    pub(super) pushes_succeeded: f64,
    pub(super) pushes_failed: f64,
}

#[derive(Serialize)]
pub(super) struct TagStats {
    pub(super) tag: String,
    pub(super) waiting: i64,
    pub(super) waiting_is_exact: bool,
    pub(super) oldest_waiting_since: Option<Timestamp>,
    pub(super) oldest_age_seconds: Option<f64>,
    pub(super) workers: i64,
    pub(super) unserved: bool,
    pub(super) per_minute: TagRates,
}

#[derive(Serialize)]
pub(super) struct TagRates {
    pub(super) published: f64,
    pub(super) completed: f64,
}

/// The time over which rates are averages: some whole minutes and the present one.
pub(super) struct RateWindow {
    pub(super) since: DateTime<Utc>,
    minutes: f64,
}

impl RateWindow {
    pub(super) fn until(now: DateTime<Utc>) -> Self {
        let first = now.timestamp().div_euclid(60) - RATE_MINUTES;
        let since = DateTime::from_timestamp(first * 60, 0).unwrap_or(now - TimeDelta::minutes(RATE_MINUTES));
        RateWindow { since, minutes: (now - since).as_seconds_f64() / 60.0 }
    }

    /// Returns the average per minute, rounded.
    pub(super) fn rate(&self, count: i64) -> f64 {
        (count as f64 / self.minutes * 100.0).round() / 100.0
    }
}

/// `GET /stats`: returns the present state of the namespace, or of one tag.
pub(crate) async fn get_stats(engine: Data<Engine>, scope: Scope, request: HttpRequest) -> Result<HttpResponse, Error> {
    let mut query = read_query(&request)?;
    let tag = query.parse_text("tag", read_tag_name);
    query.finish()?;
    // The response includes sightings that this server has not stored yet.
    engine.record_sightings().await?;
    let view = match tag {
        Some(tag) => stats_of_tag(&engine, &scope, &tag).await?,
        None => stats_of_namespace(&engine, &scope).await?,
    };
    Ok(HttpResponse::Ok().json(view))
}

fn read_tag_name(name: &str) -> Result<String, String> {
    let name = name.trim();
    text::check(name, limits::TAG_CHARS)?;
    tags::check(name)?;
    Ok(name.to_owned())
}

async fn stats_of_tag(engine: &Engine, scope: &Scope, tag: &str) -> Result<StatsView, Error> {
    let window = RateWindow::until(engine.time());
    let mut conn = engine.database().connection().await?;
    let row = read_tag(&mut conn, scope, tag, WAITING_CAP).await?;
    let recent = by_tag(read_recent_counts(&mut conn, scope, &[tag], window.since).await?);
    let tag = TagStats::of(row, WAITING_CAP, &recent, &window);
    Ok(StatsView {
        at: Timestamp(engine.time()),
        waiting: tag.waiting,
        waiting_is_exact: tag.waiting_is_exact,
        namespace: None,
        tags: vec![tag],
    })
}

pub(super) async fn stats_of_namespace(engine: &Engine, scope: &Scope) -> Result<StatsView, Error> {
    let caps = StatsCaps { waiting: WAITING_CAP, others: COUNT_CAP, stale_seconds: STALE_SECONDS };
    // One more tag shows whether there are more.
    let page = NamePage { descending: false, after: None, limit: MAX_TAGS as i64 + 1 };
    let mut conn = engine.database().connection().await?;
    let now = read_stats(&mut conn, scope, caps).await?;
    let mut rows = list_tags(&mut conn, scope, &page, COUNT_CAP).await?;
    let tags_are_complete = rows.len() <= MAX_TAGS;
    rows.truncate(MAX_TAGS);
    let window = RateWindow::until(now.at);
    let names: Vec<&str> = rows.iter().map(|row| row.tag.as_str()).chain([""]).collect();
    let recent = by_tag(read_recent_counts(&mut conn, scope, &names, window.since).await?);
    drop(conn);
    let tags: Vec<TagStats> = rows.into_iter().map(|row| TagStats::of(row, COUNT_CAP, &recent, &window)).collect();
    let total = recent.get("").map(|counts| NamespaceRates::of(counts, &window));
    let per_minute = total.ok_or_else(|| Error::Internal("the totals of a namespace were not read".into()))?;
    let unserved_tags = tags.iter().filter(|tag| tag.unserved).count();
    Ok(StatsView {
        at: Timestamp(now.at),
        waiting: now.waiting.min(WAITING_CAP),
        waiting_is_exact: now.waiting <= WAITING_CAP,
        namespace: Some(NamespaceStats::of(&now, unserved_tags, per_minute, tags_are_complete)),
        tags,
    })
}

fn by_tag(counts: Vec<RecentCounts>) -> BTreeMap<String, RecentCounts> {
    counts.into_iter().map(|counts| (counts.tag.clone(), counts)).collect()
}

impl TagStats {
    fn of(row: TagRow, cap: i64, recent: &BTreeMap<String, RecentCounts>, window: &RateWindow) -> Self {
        let rate =
            |pick: fn(&RecentCounts) -> i64| recent.get(&row.tag).map_or(0.0, |counts| window.rate(pick(counts)));
        let per_minute =
            TagRates { published: rate(|counts| counts.published), completed: rate(|counts| counts.completed) };
        TagStats {
            waiting: row.waiting.min(cap),
            waiting_is_exact: row.waiting <= cap,
            oldest_waiting_since: timestamp(row.oldest_at),
            oldest_age_seconds: row.oldest_seconds,
            workers: row.workers,
            unserved: row.waiting > 0 && row.workers == 0,
            per_minute,
            tag: row.tag,
        }
    }
}

impl NamespaceStats {
    fn of(now: &StatsNow, unserved_tags: usize, per_minute: NamespaceRates, tags_are_complete: bool) -> Self {
        let pushes_pending = now.pushes_ready.min(COUNT_CAP) + now.pushes_later.min(COUNT_CAP);
        NamespaceStats {
            delayed: now.delayed.min(COUNT_CAP),
            retrying: now.retrying.min(COUNT_CAP),
            blocked: now.blocked.min(COUNT_CAP),
            delayed_is_exact: now.later_read <= COUNT_CAP,
            running: now.running.min(COUNT_CAP),
            running_is_exact: now.running_read <= COUNT_CAP,
            failed: now.failed.min(COUNT_CAP),
            failed_is_exact: now.failed <= COUNT_CAP,
            oldest_event: now.oldest_id.map(|id| OldestEvent {
                id,
                created_at: timestamp(now.oldest_at),
                age_seconds: now.oldest_seconds,
            }),
            workers: now.workers,
            stale_workers: now.stale_workers,
            unserved_tags,
            pushes_pending,
            pushes_pending_is_exact: now.pushes_ready <= COUNT_CAP && now.pushes_read <= COUNT_CAP,
            breakers_open: now.breakers_open.min(COUNT_CAP),
            dead_letters: now.dead_letters.min(COUNT_CAP),
            dead_letters_is_exact: now.dead_letters <= COUNT_CAP,
            per_minute,
            tags_are_complete,
        }
    }
}

impl NamespaceRates {
    fn of(counts: &RecentCounts, window: &RateWindow) -> Self {
        NamespaceRates {
            published: window.rate(counts.published),
            claimed: window.rate(counts.claimed),
            completed: window.rate(counts.completed),
            failed: window.rate(counts.failed),
            pushes_succeeded: window.rate(counts.pushes_succeeded),
            pushes_failed: window.rate(counts.pushes_failed),
        }
    }
}

#[derive(Serialize)]
struct StatsHistoryView {
    from: Timestamp,
    to: Timestamp,
    step_seconds: i64,
    tag: Option<String>,
    times: Vec<Timestamp>,
    series: BTreeMap<&'static str, Vec<PointValue>>,
}

/// The value of a metric at one point.
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum PointValue {
    Count(i64),
    /// `null` if nothing was completed.
    Milliseconds(Option<f64>),
}

/// `GET /stats/history`: returns what was done in the namespace, or with the events of one tag, at evenly spaced points.
pub(crate) async fn get_stats_history(
    engine: Data<Engine>,
    scope: Scope,
    request: HttpRequest,
) -> Result<HttpResponse, Error> {
    let now = engine.time();
    let mut query = read_query(&request)?;
    // The `+` of an offset that is not encoded arrives as a space.
    let read_time = |text: &str| parse_time(&text.replace(' ', "+"), now);
    let metrics = query.parse_text("metric", Metric::parse_list).unwrap_or_else(|| Metric::ALL.to_vec());
    let tag = query.parse_text("tag", read_tag_name);
    let from = query.parse_text("from", read_time).unwrap_or(now - TimeDelta::hours(1));
    let to = query.parse_text("to", read_time).unwrap_or(now);
    let step = query.choice("step", Step::parse, &Step::ALL.map(Step::as_str).join(", "));
    let window = StatsWindow::new(from, to, step, now);
    if !query.has_errors()
        && let Err((field, reason)) = &window
    {
        query.refuse(*field, reason.as_str());
    }
    let window = query.finish_with(window.ok())?;
    let series = read_series(&engine, &scope, tag.as_deref().unwrap_or_default(), &metrics, &window).await?;
    let view = StatsHistoryView {
        from: Timestamp(window.time_of(window.points.start)),
        to: Timestamp(window.time_of(window.points.end)),
        step_seconds: window.step.seconds(),
        tag,
        times: window.points.clone().map(|point| Timestamp(window.time_of(point))).collect(),
        series,
    };
    Ok(HttpResponse::Ok().json(view))
}

/// Returns the values of metrics at all points of a window.
pub(super) async fn read_series(
    engine: &Engine,
    scope: &Scope,
    tag: &str,
    metrics: &[Metric],
    window: &StatsWindow,
) -> Result<BTreeMap<&'static str, Vec<PointValue>>, Error> {
    let is_latency = |metric: &Metric| matches!(metric, Metric::Latency(_));
    let mut conn = engine.database().connection().await?;
    let counts = match metrics.iter().all(is_latency) {
        true => BTreeMap::new(),
        false => read_stats_history(&mut conn, scope, tag, window).await?,
    };
    let latencies = match metrics.iter().any(is_latency) {
        true => read_stats_latencies(&mut conn, scope, tag, window).await?,
        false => BTreeMap::new(),
    };
    drop(conn);
    let count = |point: i64, counter: Counter| counts.get(&point).map_or(0, |counts| counts.get(counter));
    let value = |metric: Metric, point: i64| match metric {
        Metric::Count(counter) => PointValue::Count(count(point, counter)),
        Metric::PushesSent => {
            PointValue::Count(count(point, Counter::PushesSucceeded) + count(point, Counter::PushesFailed))
        }
        Metric::Latency(percent) => {
            let latency = latencies.get(&point).and_then(|buckets| percentile(buckets, percent));
            PointValue::Milliseconds(latency.map(|milliseconds| (milliseconds * 100.0).round() / 100.0))
        }
    };
    let values = |metric: Metric| window.points.clone().map(|point| value(metric, point)).collect();
    Ok(metrics.iter().map(|metric| (metric.as_str(), values(*metric))).collect())
}
