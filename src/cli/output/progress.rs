//! Progress on standard error: a bar on a terminal, else a line now and then.

use std::io::{self, IsTerminal};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{HumanBytes, HumanCount, ProgressBar, ProgressStyle};

use super::note;

/// The time between two lines where there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// The time between two drawings of a bar, so that it moves while nothing is heard.
const TICK_EVERY: Duration = Duration::from_millis(200);

/// What is counted.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Unit {
    Items,
    Bytes,
}

/// How much there is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Total {
    Unknown,
    /// It was counted up to this number only.
    MoreThan(u64),
    /// It was counted before, and may have changed since.
    About(u64),
    Exactly(u64),
}

pub(crate) struct Progress {
    /// The bar, if standard error is a terminal.
    bar: Option<ProgressBar>,
    label: String,
    unit: Unit,
    shown: Mutex<Shown>,
}

/// What was shown last.
struct Shown {
    text: String,
    last_line: Instant,
}

impl Progress {
    pub(crate) fn new(label: &str, unit: Unit) -> Self {
        let bar = io::stderr().is_terminal().then(|| {
            let bar =
                ProgressBar::new_spinner().with_style(style("{prefix} {spinner} {msg}")).with_prefix(label.to_owned());
            bar.enable_steady_tick(TICK_EVERY);
            bar
        });
        let shown = Mutex::new(Shown { text: String::new(), last_line: Instant::now() });
        Progress { bar, label: label.to_owned(), unit, shown }
    }

    /// Shows how far it is, and what else there is to say.
    pub(crate) fn set(&self, done: u64, total: Total, message: &str) {
        let mut shown = self.shown();
        shown.text = text(self.unit, done, total);
        if let (Some(bar), Total::About(length) | Total::Exactly(length)) = (&self.bar, total) {
            if bar.length() != Some(length) {
                bar.set_style(style("{prefix} {wide_bar} {msg}"));
                bar.set_length(length);
            }
            bar.set_position(done.min(length));
        }
        self.show(&mut shown, message);
    }

    /// Says something while it is as far as it was.
    pub(crate) fn say(&self, message: &str) {
        self.show(&mut self.shown(), message);
    }

    fn show(&self, shown: &mut Shown, message: &str) {
        let text = format!("{} {message}", shown.text);
        if let Some(bar) = &self.bar {
            bar.set_message(text.trim().to_owned());
        } else if shown.last_line.elapsed() >= LINE_EVERY {
            shown.last_line = Instant::now();
            note(&format!("{}: {}", self.label, text.trim()));
        }
    }

    fn shown(&self) -> MutexGuard<'_, Shown> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes the bar.
    pub(crate) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.finish();
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

/// Returns how far it is: `300 of about 700 (42 %)`.
fn text(unit: Unit, done: u64, total: Total) -> String {
    let amount = |number: u64| match unit {
        Unit::Items => HumanCount(number).to_string(),
        Unit::Bytes => HumanBytes(number).to_string(),
    };
    // Never above 100: more may match than was counted.
    let percent = |total: u64| (done.min(total) * 100).checked_div(total).unwrap_or(100);
    let now = amount(done);
    match total {
        Total::About(total) => format!("{now} of about {} ({} %)", amount(total), percent(total)),
        Total::Exactly(total) => format!("{now} of {} ({} %)", amount(total), percent(total)),
        Total::MoreThan(total) if done <= total => format!("{now} of more than {}", amount(total)),
        Total::MoreThan(_) | Total::Unknown => now,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_told_with_what_is_known_of_its_end() {
        let told = |done, total| text(Unit::Items, done, total);
        assert_eq!(told(300, Total::Unknown), "300");
        assert_eq!(told(300, Total::About(700)), "300 of about 700 (42 %)");
        assert_eq!(told(1_701, Total::About(1_700)), "1,701 of about 1,700 (100 %)");
        assert_eq!(told(0, Total::About(0)), "0 of about 0 (100 %)");
        assert_eq!(told(300, Total::MoreThan(1_000)), "300 of more than 1,000");
        assert_eq!(told(1_001, Total::MoreThan(1_000)), "1,001");
        assert_eq!(text(Unit::Bytes, 1_024, Total::Exactly(4_096)), "1.00 KiB of 4.00 KiB (25 %)");
    }
}
