//! Progress on standard error: a bar on a terminal, else a line now and then.

use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use super::note;

/// The time between two lines where there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(10);

pub(crate) struct Progress {
    /// The bar, if standard error is a terminal.
    bar: Option<ProgressBar>,
    label: String,
    last_line: Instant,
}

impl Progress {
    /// Starts a progress towards `total`, or towards an unknown end.
    pub(crate) fn new(label: impl Into<String>, total: Option<u64>) -> Self {
        let label = label.into();
        let bar = io::stderr().is_terminal().then(|| bar(&label, total));
        Progress { bar, label, last_line: Instant::now() }
    }

    /// Shows how far it is.
    pub(crate) fn set(&mut self, done: u64, total: Option<u64>, message: &str) {
        if let Some(bar) = &self.bar {
            if let Some(total) = total {
                bar.set_length(total.max(done));
            }
            bar.set_position(done);
            bar.set_message(message.to_owned());
        } else if self.last_line.elapsed() >= LINE_EVERY {
            self.last_line = Instant::now();
            let of = total.map(|total| format!(" of {total}")).unwrap_or_default();
            note(format!("{}: {done}{of} {message}", self.label).trim_end());
        }
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

fn bar(label: &str, total: Option<u64>) -> ProgressBar {
    let (bar, template) = match total {
        Some(total) => (ProgressBar::new(total), "{prefix} {wide_bar} {pos}/{len} {msg}"),
        None => (ProgressBar::new_spinner(), "{prefix} {spinner} {pos} {msg}"),
    };
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    bar.with_style(style).with_prefix(label.to_owned())
}
