//! Work that goes on if its caller goes away.

use crate::error::Error;

/// Runs `work` in a task of its own. A caller that goes away, such as a request whose time is over, would otherwise drop
/// what the work has taken and not yet written.
pub(super) async fn in_own_task<T: Send + 'static>(
    work: impl Future<Output = Result<T, Error>> + Send + 'static,
) -> Result<T, Error> {
    tokio::spawn(work).await.unwrap_or_else(|panic| Err(Error::Internal(panic.to_string())))
}
