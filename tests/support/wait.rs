//! Waiting for conditions.

use std::time::Duration;

/// Longer than any correct operation takes, even on a machine that is busy with other tests.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Polls until a condition holds that cannot be awaited.
#[track_caller]
pub(crate) fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) -> impl Future<Output = ()> {
    let called_at = std::panic::Location::caller();
    async move {
        let waiting = async {
            while !holds().await {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let outcome = tokio::time::timeout(PATIENCE, waiting).await;
        assert!(outcome.is_ok(), "timed out waiting until {what} ({called_at})");
    }
}

/// Waits for a future that must complete without further action of the test.
#[track_caller]
pub(crate) fn within_patience<T>(future: impl Future<Output = T>) -> impl Future<Output = T> {
    let called_at = std::panic::Location::caller();
    async move {
        match tokio::time::timeout(PATIENCE, future).await {
            Ok(outcome) => outcome,
            Err(elapsed) => panic!("timed out ({called_at}): {elapsed}"),
        }
    }
}
