//! What a reply waits at.

use tokio_util::sync::CancellationToken;

/// Holds replies back until it is opened. Clones are the same gate.
#[derive(Debug, Clone)]
pub struct Gate(CancellationToken);

impl Gate {
    /// A gate that somebody will open, or nobody.
    pub fn closed() -> Self {
        Self(CancellationToken::new())
    }

    /// Lets through all who wait and will come.
    pub fn open(&self) {
        self.0.cancel();
    }

    pub(super) async fn opened(&self) {
        self.0.cancelled().await;
    }
}
