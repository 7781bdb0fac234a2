//! A buffer with a size limit.

use std::io;

/// A writer that accepts at most `limit` bytes.
pub(super) struct BoundedWriter {
    bytes: Vec<u8>,
    limit: usize,
    is_over: bool,
}

impl BoundedWriter {
    pub(super) fn new(limit: usize) -> Self {
        Self { bytes: Vec::new(), limit, is_over: false }
    }

    /// Returns whether a write exceeded the limit.
    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

impl io::Write for BoundedWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + bytes.len() > self.limit {
            self.is_over = true;
            return Err(io::Error::other("the output limit is exceeded"));
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
