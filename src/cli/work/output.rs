//! What a program prints: read to its end, and kept up to a limit.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, stderr};
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// The size of one read.
const CHUNK: usize = 8 * 1024;

/// How long the output of a program that has ended is waited for: a program that it has left behind may hold it open.
const PATIENCE: Duration = Duration::from_secs(1);

/// The beginning of an output, and whether there was more.
#[derive(Debug, Default)]
pub(super) struct Beginning {
    pub bytes: Vec<u8>,
    pub is_cut: bool,
}

/// An output that is being read.
pub(super) struct Output<T> {
    kept: Arc<Mutex<T>>,
    reading: JoinHandle<()>,
}

impl<T: Default> Output<T> {
    /// Returns what was read, at the end of the output or a moment after the program has ended.
    pub(super) async fn collect(mut self) -> T {
        if timeout(PATIENCE, &mut self.reading).await.is_err() {
            self.reading.abort();
        }
        std::mem::take(&mut *lock(&self.kept))
    }
}

fn lock<T>(kept: &Mutex<T>) -> MutexGuard<'_, T> {
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reads an output to its end, and keeps its first `limit` bytes.
pub(super) fn read_beginning(mut output: impl AsyncRead + Unpin + Send + 'static, limit: usize) -> Output<Beginning> {
    let kept: Arc<Mutex<Beginning>> = Arc::default();
    let shared = Arc::clone(&kept);
    let reading = tokio::spawn(async move {
        let mut chunk = [0; CHUNK];
        while let Ok(length @ 1..) = output.read(&mut chunk).await {
            let mut kept = lock(&shared);
            let room = limit - kept.bytes.len();
            kept.bytes.extend_from_slice(&chunk[..length.min(room)]);
            kept.is_cut |= length > room;
        }
    });
    Output { kept, reading }
}

/// Reads an output to its end, shows it on standard error, and keeps at least its last `limit` bytes, if there are so
/// many.
pub(super) fn show_and_keep_end(mut output: impl AsyncRead + Unpin + Send + 'static, limit: usize) -> Output<Vec<u8>> {
    let kept: Arc<Mutex<Vec<u8>>> = Arc::default();
    let shared = Arc::clone(&kept);
    let reading = tokio::spawn(async move {
        let mut chunk = [0; CHUNK];
        while let Ok(length @ 1..) = output.read(&mut chunk).await {
            // Whoever reads the log of this program may have gone.
            let _ = stderr().write_all(&chunk[..length]).await;
            let mut kept = lock(&shared);
            kept.extend_from_slice(&chunk[..length]);
            let surplus = kept.len().saturating_sub(limit);
            kept.drain(..surplus);
        }
    });
    Output { kept, reading }
}
