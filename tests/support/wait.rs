//! Waiting for things to happen.

use std::time::Duration;

/// Longer than anything that works takes, on a machine that is busy with other tests.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Waits until something holds that nobody announces.
#[track_caller]
pub fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) -> impl Future<Output = ()> {
    let called_at = std::panic::Location::caller();
    async move {
        let waiting = async {
            while !holds().await {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let outcome = tokio::time::timeout(PATIENCE, waiting).await;
        assert!(outcome.is_ok(), "it never happened that {what} ({called_at})");
    }
}

/// The outcome of something that must come by itself.
#[track_caller]
pub fn within_patience<T>(future: impl Future<Output = T>) -> impl Future<Output = T> {
    let called_at = std::panic::Location::caller();
    async move {
        match tokio::time::timeout(PATIENCE, future).await {
            Ok(outcome) => outcome,
            Err(_) => panic!("it never came ({called_at})"),
        }
    }
}
