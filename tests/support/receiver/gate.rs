//! Holds replies back until the test releases them.

use tokio_util::sync::CancellationToken;

/// Holds replies back until it is opened. Clones are the same gate.
#[derive(Debug, Clone)]
pub(crate) struct Gate(CancellationToken);

impl Gate {
    /// Creates a closed gate.
    pub(crate) fn closed() -> Self {
        Self(CancellationToken::new())
    }

    /// Releases all replies, those that wait and those still to come.
    pub(crate) fn open(&self) {
        self.0.cancel();
    }

    pub(super) async fn opened(&self) {
        self.0.cancelled().await;
    }
}
