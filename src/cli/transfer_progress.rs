//! The progress of a transfer: a bar on a terminal, otherwise a line from time to time.

use std::io::IsTerminal;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// The time between two lines.
const LINE_INTERVAL: Duration = Duration::from_secs(10);

/// The progress of something whose size is known.
pub(super) struct TransferProgress {
    what: &'static str,
    total: u64,
    bar: Option<ProgressBar>,
    last_line: Mutex<Instant>,
}

impl TransferProgress {
    pub(super) fn new(what: &'static str, unit: Unit, total: u64) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| ProgressBar::new(total).with_style(unit.style()));
        if let Some(bar) = &bar {
            bar.set_prefix(what);
            bar.enable_steady_tick(Duration::from_millis(200));
        }
        Self { what, total, bar, last_line: Mutex::new(Instant::now()) }
    }

    pub(super) fn set(&self, done: u64) {
        match &self.bar {
            Some(bar) => bar.set_position(done.min(self.total)),
            None => self.print_line(done),
        }
    }

    /// Says what happens besides.
    pub(super) fn say(&self, message: String) {
        if let Some(bar) = &self.bar {
            bar.set_message(message);
        }
    }

    pub(super) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    fn print_line(&self, done: u64) {
        let mut last_line = self.last_line.lock().unwrap_or_else(PoisonError::into_inner);
        if last_line.elapsed() < LINE_INTERVAL {
            return;
        }
        *last_line = Instant::now();
        let percent = (done * 100).checked_div(self.total).unwrap_or(100).min(100);
        eprintln!("waybill: {}: {percent} %", self.what);
    }
}

/// What is counted.
#[derive(Debug, Clone, Copy)]
pub(super) enum Unit {
    Rows,
    Bytes,
}

impl Unit {
    fn style(self) -> ProgressStyle {
        let template = match self {
            Unit::Rows => "{prefix} {wide_bar} {human_pos}/{human_len} rows {msg} {elapsed}",
            Unit::Bytes => "{prefix} {wide_bar} {bytes}/{total_bytes} {msg} {elapsed}",
        };
        ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
    }
}
