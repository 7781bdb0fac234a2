//! What has failed lately: red for an hour, amber for a day, and history after that.
//!
//! It is what is FAILED still. If failures were counted, the page would stay red although somebody has retried everything.

use maud::{Markup, html};

use super::attention::{line, some};
use super::filter_line::word;
use super::parts::{events_link, filtered};
use super::viewer::Viewer;
use crate::store::lists::attention::FailureRow;

/// The number of failed events that are looked at.
pub(super) const FAILURES: i64 = 300;

/// The number of tags that are named.
const NAMED: usize = 5;

pub(super) const HOUR: f64 = 3_600.0;
pub(super) const DAY: f64 = 24.0 * HOUR;

/// Events that have failed within some time, and are FAILED still.
#[derive(Debug, PartialEq)]
pub(super) struct Failures {
    pub count: i64,
    pub is_exact: bool,
    /// The age of the oldest of them.
    published_seconds: f64,
    /// How many of them each tag has, the most first.
    tags: Vec<(String, i64)>,
    /// Those whose pushes have failed, and that no worker was meant for.
    without_tags: i64,
}

impl Failures {
    /// Returns those that have failed more than `newest` and at most `oldest` seconds ago.
    pub(super) fn between(rows: &[FailureRow], newest: f64, oldest: f64) -> Self {
        let is_within =
            |row: &&FailureRow| row.seconds_ago.max(f64::MIN_POSITIVE) > newest && row.seconds_ago <= oldest;
        let mut failures = Failures {
            count: 0,
            is_exact: (rows.len() as i64) < FAILURES,
            published_seconds: 0.0,
            tags: Vec::new(),
            without_tags: 0,
        };
        for row in rows.iter().filter(is_within) {
            failures.count += 1;
            failures.published_seconds = failures.published_seconds.max(row.published_seconds_ago.unwrap_or(0.0));
            let tags = row.tags.as_deref().unwrap_or_default();
            failures.without_tags += i64::from(tags.is_empty());
            for tag in tags.split(',').filter(|tag| !tag.is_empty()) {
                match failures.tags.iter_mut().find(|(known, _)| known == tag) {
                    Some((_, number)) => *number += 1,
                    None => failures.tags.push((tag.to_owned(), 1)),
                }
            }
        }
        failures.tags.sort_by_key(|(_, number)| -number);
        failures
    }

    /// Returns the words of the filter line for these events. `since` is about the publication, which may lie further back
    /// than the failure.
    pub(super) fn words(&self) -> String {
        let ages = [("1h", HOUR), ("24h", DAY), ("7d", 7.0 * DAY)];
        match ages.iter().find(|(_, seconds)| self.published_seconds <= *seconds) {
            Some((age, _)) => format!("status:FAILED since:{age}"),
            None => "status:FAILED".to_owned(),
        }
    }

    pub(super) fn line(&self, viewer: &Viewer, kind: &str, when: &str) -> Markup {
        let text = some(self.count, self.is_exact, "event", &format!(" failed {when}"));
        let by_tag = html! {
            @for (tag, number) in self.tags.iter().take(NAMED) {
                (events_link(viewer, &format!("{} {}", self.words(), word("tag:", tag)), &format!("{tag} ({number})"))) " "
            }
            @if self.tags.len() > NAMED { "… " }
            @if self.without_tags > 0 {
                a href=(viewer.link("/ui/deliveries?status=FAILED")) { "without tags (" (self.without_tags) ")" }
            }
        };
        html! { @if self.count > 0 { (line(viewer, kind, "failed", &filtered(&self.words()), &text, &by_tag)) } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(seconds_ago: f64, published_seconds_ago: f64, tags: &str) -> FailureRow {
        FailureRow { seconds_ago, published_seconds_ago: Some(published_seconds_ago), tags: Some(tags.to_owned()) }
    }

    #[test]
    fn failures_are_counted_by_time_and_tag() {
        let rows = [row(0.0, 5.0, "mail"), row(60.0, 90.0, "billing,mail"), row(7_200.0, 7_300.0, "billing")];
        let hour = Failures::between(&rows, 0.0, HOUR);
        assert_eq!((hour.count, hour.is_exact, hour.words().as_str()), (2, true, "status:FAILED since:1h"));
        assert_eq!(hour.tags, [("mail".to_owned(), 2), ("billing".to_owned(), 1)]);
        let earlier = Failures::between(&rows, HOUR, DAY);
        assert_eq!((earlier.count, earlier.words().as_str()), (1, "status:FAILED since:24h"));
    }

    #[test]
    fn the_list_goes_back_to_the_publication_of_the_oldest() {
        for (published, words) in [
            (3_000.0, "status:FAILED since:1h"),
            (4_000.0, "status:FAILED since:24h"),
            (100_000.0, "status:FAILED since:7d"),
            (1_000_000.0, "status:FAILED"),
        ] {
            assert_eq!(Failures::between(&[row(10.0, published, "a")], 0.0, HOUR).words(), words);
        }
    }
}
