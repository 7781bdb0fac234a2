//! What is slow: the tags whose events take longest from publish to completion, or wait longest now.

use std::collections::BTreeMap;

use chrono::{DateTime, TimeDelta, Utc};
use maud::{Markup, html};

use super::filter_line::word;
use super::numbers::duration;
use super::parts::{count, events_link};
use super::viewer::Viewer;
use crate::domain::stats::latency::percentile;
use crate::error::Error;
use crate::http::stats::TagStats;
use crate::store::lists::attention::read_tag_latencies;

/// The number of tags whose latencies are read: those that have waited longest.
const READ_TAGS: usize = 50;

/// The number of tags that are shown.
const SHOWN_TAGS: usize = 5;

/// What takes no longer is not slow.
const SLOW_MS: f64 = 1_000.0;

struct SlowTag<'a> {
    tag: &'a TagStats,
    p50: Option<f64>,
    p95: Option<f64>,
    oldest_ms: Option<f64>,
}

impl SlowTag<'_> {
    fn slowness(&self) -> f64 {
        self.p95.unwrap_or(0.0).max(self.oldest_ms.unwrap_or(0.0))
    }
}

/// Returns the slowest of these tags, the slowest first.
pub(super) async fn slow_tags(viewer: &Viewer, tags: &[TagStats]) -> Result<Markup, Error> {
    // Stats by hour cost less than those by minute. The last hour as well: the present one may have just begun.
    let hours = viewer.engine.time().timestamp().div_euclid(3_600) - 1;
    let since = DateTime::from_timestamp(hours * 3_600, 0).unwrap_or(viewer.engine.time() - TimeDelta::hours(1));
    let mut oldest_first: Vec<&TagStats> = tags.iter().collect();
    oldest_first.sort_by(|a, b| b.oldest_age_seconds.unwrap_or(0.0).total_cmp(&a.oldest_age_seconds.unwrap_or(0.0)));
    oldest_first.truncate(READ_TAGS);
    let names: Vec<&str> = oldest_first.iter().map(|tag| tag.tag.as_str()).collect();
    let mut conn = viewer.engine.database().connection().await?;
    let latencies = read_tag_latencies(&mut conn, &viewer.scope, &names, since).await?;
    drop(conn);
    Ok(render(viewer, &slowest(&oldest_first, &latencies), since))
}

fn slowest<'a>(tags: &[&'a TagStats], latencies: &BTreeMap<String, BTreeMap<i16, i64>>) -> Vec<SlowTag<'a>> {
    let mut slow: Vec<SlowTag<'_>> = tags
        .iter()
        .map(|tag| {
            let latency = |percent| latencies.get(&tag.tag).and_then(|buckets| percentile(buckets, percent));
            let oldest_ms = tag.oldest_age_seconds.map(|seconds| seconds * 1_000.0);
            SlowTag { tag, p50: latency(50), p95: latency(95), oldest_ms }
        })
        .filter(|tag| tag.slowness() >= SLOW_MS)
        .collect();
    slow.sort_by(|a, b| b.slowness().total_cmp(&a.slowness()));
    slow.truncate(SHOWN_TAGS);
    slow
}

fn render(viewer: &Viewer, slow: &[SlowTag<'_>], since: DateTime<Utc>) -> Markup {
    html! {
        h2 { "What is slow" }
        @if slow.is_empty() {
            p.muted { "Nothing: no event waits longer than a second, nor took longer to complete since " (since.format("%H:%M")) " UTC." }
        } @else {
            div.table {
                table.rows {
                    thead {
                        tr {
                            th { "Tag" } th.number { "Waiting" } th.number { "Oldest waiting" }
                            th.number { "p50 since " (since.format("%H:%M")) } th.number { "p95" }
                        }
                    }
                    tbody { @for slow in slow { (row(viewer, slow)) } }
                }
            }
        }
    }
}

fn row(viewer: &Viewer, slow: &SlowTag<'_>) -> Markup {
    let of_tag = word("tag:", &slow.tag.tag);
    let waiting = count(slow.tag.waiting, slow.tag.waiting_is_exact);
    let text = |milliseconds: Option<f64>| milliseconds.map_or("–".to_owned(), duration);
    html! {
        tr {
            td.wide { (events_link(viewer, &of_tag, &slow.tag.tag)) }
            td.number data-label="waiting" { (events_link(viewer, &format!("status:PENDING {of_tag}"), &waiting)) }
            td.number.nowrap data-label="oldest" { (text(slow.oldest_ms)) }
            td.number.nowrap data-label="p50" { (text(slow.p50)) }
            td.number.nowrap data-label="p95" { (text(slow.p95)) }
        }
    }
}
