//! What needs a person, each with the way to it: failures, tags that nobody serves, silent workers, open breakers, dead
//! letters.

use maud::{Markup, html};

use super::failures::{DAY, FAILURES, Failures, HOUR};
use super::filter_line::word;
use super::numbers::duration;
use super::parts::{count, event_link, events_link, filtered};
use super::viewer::Viewer;
use crate::domain::address::masked;
use crate::domain::operation::OperationStatus;
use crate::error::Error;
use crate::http::operate::STALE_SECONDS;
use crate::http::stats::{NamespaceStats, StatsView, TagStats};
use crate::store::lists::attention::{OpenBreaker, StaleWorker, list_failures, list_open_breakers, list_stale_workers};
use crate::store::lists::pages::Page;
use crate::store::tables::operations::{OperationListFilter, OperationRow, list_operations};

/// The number of tags, workers, endpoints and operations that are named.
const NAMED: usize = 5;

/// The number of leases among which silent workers are looked for.
const LEASES: i64 = 1_000;

/// What needs a person, beyond what [`StatsView`] has.
pub(super) struct Attention {
    pub last_hour: Failures,
    /// Those of the last day that are no longer of the last hour.
    pub earlier: Failures,
    last_failure_seconds: Option<f64>,
    stale: Vec<StaleWorker>,
    breakers: Vec<OpenBreaker>,
    operations: Vec<OperationRow>,
}

impl Attention {
    pub(super) async fn read(viewer: &Viewer, all: &NamespaceStats) -> Result<Self, Error> {
        let (scope, named) = (&viewer.scope, NAMED as i64);
        let mut conn = viewer.engine.database().connection().await?;
        let failures = list_failures(&mut conn, scope, DAY, FAILURES).await?;
        let stale = match all.stale_workers {
            0 => Vec::new(),
            _ => list_stale_workers(&mut conn, scope, STALE_SECONDS, LEASES, named).await?,
        };
        let breakers = match all.breakers_open {
            0 => Vec::new(),
            _ => list_open_breakers(&mut conn, scope, named).await?,
        };
        let running = OperationListFilter { status: Some(OperationStatus::Running), kind: None };
        let page = Page { descending: true, after: None, limit: named, scan: 0 };
        let operations = list_operations(&mut conn, scope, running, page).await?;
        Ok(Attention {
            last_hour: Failures::between(&failures, 0.0, HOUR),
            earlier: Failures::between(&failures, HOUR, DAY),
            last_failure_seconds: failures.iter().map(|row| row.seconds_ago.max(0.0)).min_by(f64::total_cmp),
            stale,
            breakers,
            operations,
        })
    }

    fn is_well(&self, all: &NamespaceStats) -> bool {
        self.last_hour.count == 0
            && self.earlier.count == 0
            && all.unserved_tags == 0
            && all.stale_workers == 0
            && all.breakers_open == 0
            && all.dead_letters == 0
    }

    pub(super) fn render(&self, viewer: &Viewer, now: &StatsView, all: &NamespaceStats) -> Markup {
        html! {
            h2 { "Needs attention" }
            @if self.is_well(all) {
                p.well { span.state.good { "All is well." } " " (self.all_is_well(viewer, now, all)) }
            }
            @if !self.is_well(all) || !self.operations.is_empty() {
                ul.attention {
                    (self.last_hour.line(viewer, "bad", "in the last hour"))
                    (self.open_breakers(viewer, all))
                    // What is bad comes before what may become so.
                    (self.earlier.line(viewer, "warning", "in the last 24 hours"))
                    (unserved(viewer, now, all))
                    (self.stale_workers(viewer, all))
                    @if all.dead_letters > 0 {
                        (line(viewer, "warning", "dead letters", "/ui/dead-letters?replayed=false",
                              &some(all.dead_letters, all.dead_letters_is_exact, "dead letter", ""), &html! {}))
                    }
                    @for row in &self.operations { (operation(viewer, row)) }
                }
            }
        }
    }

    fn all_is_well(&self, viewer: &Viewer, now: &StatsView, all: &NamespaceStats) -> Markup {
        html! {
            a href=(viewer.link("/ui/workers")) { (some(all.workers, true, "worker", "")) } ", "
            a href=(viewer.link("/ui/tags")) { (some(now.tags.len() as i64, all.tags_are_complete, "tag", "")) } ", "
            @match self.last_failure_seconds {
                Some(seconds) => { (events_link(viewer, "status:FAILED", &format!("last failure {} ago", duration(seconds * 1_000.0)))) "." }
                None => "no failed events."
            }
        }
    }

    fn stale_workers(&self, viewer: &Viewer, all: &NamespaceStats) -> Markup {
        let others = all.stale_workers - self.stale.len() as i64;
        html! {
            @for worker in &self.stale {
                (line(viewer, "warning", "stale", &filtered(&word("worker:", &worker.worker_id)),
                      &format!("worker {} silent for {}, holds {}", worker.worker_id, duration(worker.silent_seconds * 1_000.0), worker.holding),
                      &html! { @for id in &worker.event_ids { (event_link(viewer, *id)) " " } }))
            }
            @if others > 0 {
                (line(viewer, "warning", "stale", "/ui/workers", &some(others, true, "further worker", " silent"), &html! {}))
            }
        }
    }

    fn open_breakers(&self, viewer: &Viewer, all: &NamespaceStats) -> Markup {
        let others = all.breakers_open - self.breakers.len() as i64;
        html! {
            @for breaker in &self.breakers {
                @let path = breaker.subscription_id.map_or("/ui/subscriptions".to_owned(), |id| format!("/ui/subscriptions/{id}"));
                (line(viewer, "bad", "breaker open", &path,
                      &format!("endpoint {} has failed {} times in a row", masked(&breaker.url), breaker.failures_in_row),
                      &html! { "next try " @if breaker.paused_for > 0.0 { "in " (duration(breaker.paused_for * 1_000.0)) } @else { "now" } }))
            }
            @if others > 0 {
                (line(viewer, "bad", "breaker open", "/ui/subscriptions", &some(others, true, "further endpoint", ""), &html! {}))
            }
        }
    }
}

/// Returns a line: what it is, where it leads, and what else is known.
pub(super) fn line(viewer: &Viewer, kind: &str, state: &str, path: &str, text: &str, more: &Markup) -> Markup {
    html! {
        li {
            span class=(format!("state {kind}")) { (state) }
            a.what href=(viewer.link(path)) { (text) }
            span.where { (more) }
        }
    }
}

/// Returns a number of things in words: "1 event has failed", "2 events have failed".
pub(super) fn some(number: i64, is_exact: bool, noun: &str, rest: &str) -> String {
    let plural = if number == 1 && is_exact { "" } else { "s" };
    format!("{} {noun}{plural}{rest}", count(number, is_exact))
}

fn unserved(viewer: &Viewer, now: &StatsView, all: &NamespaceStats) -> Markup {
    let mut tags: Vec<&TagStats> = now.tags.iter().filter(|tag| tag.unserved).collect();
    tags.sort_by(|a, b| b.oldest_age_seconds.unwrap_or(0.0).total_cmp(&a.oldest_age_seconds.unwrap_or(0.0)));
    let others = all.unserved_tags.saturating_sub(NAMED) as i64;
    html! {
        @for tag in tags.into_iter().take(NAMED) {
            (line(viewer, "warning", "no worker", &filtered(&format!("status:PENDING {}", word("tag:", &tag.tag))),
                  &format!("tag {} has {} waiting and no worker", tag.tag, count(tag.waiting, tag.waiting_is_exact)),
                  &html! { @if let Some(seconds) = tag.oldest_age_seconds { "oldest " (duration(seconds * 1_000.0)) } }))
        }
        @if others > 0 {
            (line(viewer, "warning", "no worker", "/ui/tags", &some(others, true, "further tag", " without a worker"), &html! {}))
        }
    }
}

fn operation(viewer: &Viewer, row: &OperationRow) -> Markup {
    let dealt_with = row.done + row.skipped + row.failed;
    let text = format!("{}: {} of {}", row.kind, count(dealt_with, true), count(row.matched, row.matched_is_exact));
    let actor = html! { @if let Some(actor) = &row.actor { "by " (actor) } };
    line(viewer, "PROCESSING", "running", &format!("/ui/operations/{}", row.id), &text, &actor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn things_are_counted_in_words() {
        assert_eq!(some(1, true, "event", " failed"), "1 event failed");
        assert_eq!(some(300, false, "event", " failed"), "300+ events failed");
    }
}
