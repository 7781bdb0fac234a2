//! The beginning of a response body.

use reqwest::Response;

/// Bytes of a body that are read before the connection is dropped. The limit is large enough to read a
/// typical short response completely, which allows the connection to be reused.
pub const RESPONSE_READ_BYTES: usize = 16 * 1024;
/// Bytes of a body that are stored.
pub const EXCERPT_BYTES: usize = 2 * 1024;

/// The bytes that have been kept so far.
#[derive(Debug, Default)]
pub(super) struct Excerpt(Vec<u8>);

impl Excerpt {
    /// Reads the body to its end, or up to [`RESPONSE_READ_BYTES`].
    pub(super) async fn read(&mut self, mut response: Response) -> reqwest::Result<()> {
        let mut read = 0;
        while read < RESPONSE_READ_BYTES {
            let Some(chunk) = response.chunk().await? else { break };
            read += chunk.len();
            // Three extra bytes complete a UTF-8 character that starts before the limit.
            let wanted = (EXCERPT_BYTES + 3).saturating_sub(self.0.len());
            self.0.extend_from_slice(&chunk[..wanted.min(chunk.len())]);
        }
        Ok(())
    }

    /// Returns the excerpt as text. Invalid UTF-8 is replaced, and U+0000 is removed because PostgreSQL
    /// cannot store it.
    pub(super) fn into_text(self) -> String {
        let mut text = String::from_utf8_lossy(&self.0).replace('\0', "");
        text.truncate(text.floor_char_boundary(EXCERPT_BYTES));
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_utf8_is_replaced_and_nul_removed() {
        assert_eq!(Excerpt(b"a\0b\xff\xfec".to_vec()).into_text(), "ab\u{fffd}\u{fffd}c");
    }

    #[test]
    fn truncation_never_splits_a_character() {
        let text = Excerpt(format!("a{}", "ü".repeat(EXCERPT_BYTES)).into_bytes()).into_text();
        assert_eq!(text, format!("a{}", "ü".repeat(EXCERPT_BYTES / 2 - 1)));
        assert!(Excerpt(vec![0xff; EXCERPT_BYTES]).into_text().len() <= EXCERPT_BYTES);
    }
}
