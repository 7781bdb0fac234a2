//! The beginning of a response body.

use std::cmp::Reverse;

use reqwest::Response;

/// Bytes of a body that are read before the connection is dropped. The limit is large enough to read a
/// typical short response completely, which allows the connection to be reused.
pub const RESPONSE_READ_BYTES: usize = 16 * 1024;
/// Bytes of a body that are stored.
pub const EXCERPT_BYTES: usize = 2 * 1024;

/// The length from which a text is replaced in an excerpt. Shorter ones are no secrets, and occur by chance.
pub const REDACTED_CHARS: usize = 8;
/// What is stored instead of a secret.
const REDACTED: &str = "[redacted]";

/// The bytes that have been kept so far.
#[derive(Default)]
pub(super) struct Excerpt {
    bytes: Vec<u8>,
    /// The texts to replace, the longest first.
    redacted: Vec<String>,
}

impl Excerpt {
    /// Creates an excerpt in which `redacted` are replaced.
    pub(super) fn without(mut redacted: Vec<String>) -> Self {
        redacted.retain(|text| text.len() >= REDACTED_CHARS);
        redacted.sort_by_key(|text| Reverse(text.len()));
        Self { bytes: Vec::new(), redacted }
    }

    /// Reads the body to its end, or up to [`RESPONSE_READ_BYTES`].
    pub(super) async fn read(&mut self, mut response: Response) -> reqwest::Result<()> {
        // Three extra bytes complete a UTF-8 character that starts before the limit, and as many as the longest
        // secret has complete a secret.
        let kept = EXCERPT_BYTES + 3 + self.redacted.first().map_or(0, String::len);
        let mut read = 0;
        while read < RESPONSE_READ_BYTES {
            let Some(chunk) = response.chunk().await? else { break };
            read += chunk.len();
            let wanted = kept.saturating_sub(self.bytes.len());
            self.bytes.extend_from_slice(&chunk[..wanted.min(chunk.len())]);
        }
        Ok(())
    }

    /// Returns the excerpt as text. Secrets and invalid UTF-8 are replaced, and U+0000 is removed because PostgreSQL
    /// cannot store it.
    pub(super) fn into_text(self) -> String {
        let text = String::from_utf8_lossy(&self.bytes).replace('\0', "");
        let mut kept = String::with_capacity(text.len().min(EXCERPT_BYTES));
        let mut at = 0;
        // What begins behind the limit is dropped: a secret may be cut off there.
        while at < text.len().min(EXCERPT_BYTES) {
            let rest = &text[at..];
            if let Some(secret) = self.redacted.iter().find(|secret| rest.starts_with(secret.as_str())) {
                kept.push_str(REDACTED);
                at += secret.len();
            } else {
                let Some(next) = rest.chars().next() else { break };
                kept.push(next);
                at += next.len_utf8();
            }
        }
        kept.truncate(kept.floor_char_boundary(EXCERPT_BYTES));
        kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text_of(bytes: &[u8], redacted: &[&str]) -> String {
        let redacted = redacted.iter().map(|text| (*text).to_owned()).collect();
        Excerpt { bytes: bytes.to_vec(), ..Excerpt::without(redacted) }.into_text()
    }

    #[test]
    fn invalid_utf8_is_replaced_and_nul_removed() {
        assert_eq!(text_of(b"a\0b\xff\xfec", &[]), "ab\u{fffd}\u{fffd}c");
    }

    #[test]
    fn truncation_never_splits_a_character() {
        let text = text_of(format!("a{}", "ü".repeat(EXCERPT_BYTES)).as_bytes(), &[]);
        assert_eq!(text, format!("a{}", "ü".repeat(EXCERPT_BYTES / 2 - 1)));
        assert!(text_of(&[0xff; EXCERPT_BYTES], &[]).len() <= EXCERPT_BYTES);
    }

    #[test]
    fn secrets_that_the_receiver_repeats_are_replaced() {
        let redacted = ["Bearer s3cret-token", "s3cret-token", "short", ""];
        let text = text_of("no: Bearer s3cret-token, s3cret-token; short ü".as_bytes(), &redacted);
        assert_eq!(text, "no: [redacted], [redacted]; short ü");
    }

    #[test]
    fn no_part_of_a_secret_is_left_at_the_end() {
        let secret = "s3cret-token";
        for before in EXCERPT_BYTES - 2 * secret.len()..=EXCERPT_BYTES {
            let body = format!("{}{secret}{secret}", ".".repeat(before));
            let cut = &body.as_bytes()[..body.len().min(EXCERPT_BYTES + 3 + secret.len())];
            assert!(!text_of(cut, &[secret]).contains("s3"), "{before}");
        }
    }
}
