//! The beginning of an answer's body.

use reqwest::Response;

/// Bytes of a body that are read before the connection is dropped: enough that the usual short
/// answer is read to its end and the connection can be used again.
pub const RESPONSE_READ_BYTES: usize = 16 * 1024;
/// Bytes of a body that are kept.
pub const EXCERPT_BYTES: usize = 2 * 1024;

/// What has been kept so far.
#[derive(Debug, Default)]
pub(super) struct Excerpt(Vec<u8>);

impl Excerpt {
    /// Reads the body to its end, or until enough of it was read.
    pub async fn read(&mut self, mut response: Response) -> reqwest::Result<()> {
        let mut read = 0;
        while read < RESPONSE_READ_BYTES {
            let Some(chunk) = response.chunk().await? else { break };
            read += chunk.len();
            // Three bytes more than are kept, for a character that the cut would go through.
            let room = (EXCERPT_BYTES + 3).saturating_sub(self.0.len());
            self.0.extend_from_slice(&chunk[..room.min(chunk.len())]);
        }
        Ok(())
    }

    /// As text: what is not UTF-8 is replaced, and U+0000 is left out, since it cannot be stored.
    pub fn into_text(self) -> String {
        let mut text = String::from_utf8_lossy(&self.0).replace('\0', "");
        text.truncate(text.floor_char_boundary(EXCERPT_BYTES));
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_text_becomes_text() {
        assert_eq!(Excerpt(b"a\0b\xff\xfec".to_vec()).into_text(), "ab\u{fffd}\u{fffd}c");
    }

    #[test]
    fn the_cut_goes_through_no_character() {
        let text = Excerpt(format!("a{}", "ü".repeat(EXCERPT_BYTES)).into_bytes()).into_text();
        assert_eq!(text, format!("a{}", "ü".repeat(EXCERPT_BYTES / 2 - 1)));
        assert!(Excerpt(vec![0xff; EXCERPT_BYTES]).into_text().len() <= EXCERPT_BYTES);
    }
}
