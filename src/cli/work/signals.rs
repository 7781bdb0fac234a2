//! The signals that ask a worker to stop.

use std::fs;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::cli::error::CliError;

/// What asks a worker to stop: `kill` and service managers (TERM), the keyboard (INT, QUIT), and a terminal that was
/// closed (HUP). Left to itself, any of them would end the worker and leave its programs running.
const KINDS: [SignalKind; 4] =
    [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup(), SignalKind::quit()];

/// Listens for signals.
pub(super) struct StopSignals([Option<Signal>; KINDS.len()]);

impl StopSignals {
    /// Listens for all that are not ignored: `nohup` ignores HUP, and means it.
    pub(super) fn listen() -> Result<Self, CliError> {
        let ignored = ignored_signals(&fs::read_to_string("/proc/self/status").unwrap_or_default());
        let mut signals = KINDS.map(|_| None);
        for (listener, kind) in signals.iter_mut().zip(KINDS) {
            if kind != SignalKind::hangup() || !has(ignored, kind) {
                let listening = signal(kind);
                let failed = |error| CliError::Failed(format!("cannot listen for signals: {error}"));
                *listener = Some(listening.map_err(failed)?);
            }
        }
        Ok(StopSignals(signals))
    }

    /// Waits for the next signal.
    pub(super) async fn next(&mut self) {
        let [terminate, interrupt, hang_up, quit] = &mut self.0;
        tokio::select! {
            () = one(terminate) => {}
            () = one(interrupt) => {}
            () = one(hang_up) => {}
            () = one(quit) => {}
        }
    }
}

async fn one(signal: &mut Option<Signal>) {
    match signal {
        Some(signal) => {
            signal.recv().await;
        }
        None => std::future::pending().await,
    }
}

/// Returns the set of ignored signals of a process from its `/proc/…/status`, one bit each, or none if it has no such
/// line.
fn ignored_signals(status: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    line.and_then(|set| u64::from_str_radix(set.trim(), 16).ok()).unwrap_or(0)
}

fn has(set: u64, kind: SignalKind) -> bool {
    set >> (kind.as_raw_value() - 1) & 1 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_signals_that_a_process_ignores_are_read_from_its_status() {
        let ignored = ignored_signals("Name:\twaybill\nSigIgn:\t0000000000001001\nSigCgt:\t0000000000000002\n");
        assert!(has(ignored, SignalKind::hangup()) && has(ignored, SignalKind::pipe()));
        assert!(!has(ignored, SignalKind::interrupt()) && !has(ignored, SignalKind::terminate()));
        assert_eq!(ignored_signals("Name:\twaybill\n"), 0);
    }
}
