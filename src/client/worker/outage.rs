//! What is logged about a server that is away: a line when it is lost, and one when it is back. A worker with many
//! events would otherwise write a line for each of them and each attempt.

use std::sync::{Mutex, PoisonError};

use tokio::time::Instant;

use crate::client::ClientError;

/// Whether the server was away the last time that a worker asked.
#[derive(Debug, Default)]
pub(super) struct OutageLog(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    is_away: bool,
    answered_at: Option<Instant>,
}

#[derive(Debug, PartialEq, Eq)]
enum Change {
    Lost,
    Back,
}

impl OutageLog {
    /// Notes how a request ended, and logs if the server was lost or is back.
    pub(super) fn note<T>(&self, sent_at: Instant, sent: &Result<T, ClientError>) {
        let away = sent.as_ref().err().filter(|error| !error.is_final() && !is_recorded(error));
        let change = self.0.lock().unwrap_or_else(PoisonError::into_inner).note(sent_at, away.is_some());
        match (change, away) {
            (Some(Change::Lost), Some(error)) => log::warn!("the server is away; trying until it is back: {error}"),
            (Some(Change::Back), _) => log::info!("the server is back"),
            _ => {}
        }
    }
}

impl State {
    fn note(&mut self, sent_at: Instant, is_away: bool) -> Option<Change> {
        // A request that was sent before another was answered may fail after it, and says nothing about the present.
        let is_outdated = self.answered_at.is_some_and(|answered_at| sent_at <= answered_at);
        if is_away && is_outdated {
            return None;
        }
        if !is_away {
            self.answered_at = Some(Instant::now());
        }
        match (std::mem::replace(&mut self.is_away, is_away), is_away) {
            (false, true) => Some(Change::Lost),
            (true, false) => Some(Change::Back),
            _ => None,
        }
    }
}

/// Returns whether the server has answered with a problem, and recorded what it was sent.
pub(super) fn is_recorded(error: &ClientError) -> bool {
    error.problem().is_some_and(|problem| problem.effect == "recorded")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_lost_once_and_back_once() {
        let (mut state, early) = (State::default(), Instant::now());
        assert_eq!(state.note(early, true), Some(Change::Lost));
        assert_eq!(state.note(early, true), None);
        assert_eq!(state.note(early, false), Some(Change::Back));
        assert_eq!(state.note(early, false), None);
        // It was sent before the server was back.
        assert_eq!(state.note(early, true), None);
        let later = Instant::now() + std::time::Duration::from_secs(1);
        assert_eq!(state.note(later, true), Some(Change::Lost));
    }
}
