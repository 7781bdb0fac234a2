//! Cursors of lists: `next` in a response, `after` in the request for the next page.
//!
//! A cursor is opaque to clients. It contains the position at which a page ended, a fingerprint of the
//! list with its namespace, filters and order, and the epoch of the database (see
//! [`crate::domain::history`]). Under other filters, or after a restore, the same position would
//! silently skip or repeat rows, so the cursor is refused. The checksum tells a damaged cursor from one
//! of another list. It is no signature: a forged cursor shows nothing that the list does not show anyway.
//!
//! All of it is encoded in base64url. A name that would make the cursor longer than [`MAX_CHARS`] follows
//! behind a `~`, as it is.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::domain::history::{EPOCH_CHARS, Numbers, is_epoch};
use crate::domain::ids::NamespaceId;
use crate::domain::{limits, text};
use crate::engine::Engine;
use crate::error::Error;

/// The maximum length of a cursor in characters.
pub(crate) const MAX_CHARS: usize = 512;

const FINGERPRINT_BYTES: usize = 8;
const CHECKSUM_BYTES: usize = 4;
const HEAD_BYTES: usize = FINGERPRINT_BYTES + EPOCH_CHARS + CHECKSUM_BYTES;
/// The maximum size of an encoded position: base64 has 3 bytes in 4 characters.
const MAX_ENCODED_BYTES: usize = MAX_CHARS / 4 * 3 - HEAD_BYTES;

type Fingerprint = [u8; FINGERPRINT_BYTES];

/// The end of a page of some list.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Cursor {
    fingerprint: Fingerprint,
    epoch: String,
    position: Vec<u8>,
}

impl Cursor {
    /// Parses a cursor of any list. Returns `None` if the text is no cursor, or a damaged one.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        if text.chars().count() > MAX_CHARS {
            return None;
        }
        let (encoded, name) = text.split_once('~').map_or((text, None), |(encoded, name)| (encoded, Some(name)));
        let bytes = URL_SAFE_NO_PAD.decode(encoded).ok()?;
        let (fingerprint, rest) = bytes.split_first_chunk::<FINGERPRINT_BYTES>()?;
        let (epoch, rest) = rest.split_first_chunk::<EPOCH_CHARS>()?;
        let (checksum, position) = rest.split_first_chunk::<CHECKSUM_BYTES>()?;
        let position = match name {
            Some(name) if position.is_empty() => name.as_bytes(),
            Some(_) => return None,
            None => position,
        };
        let epoch = str::from_utf8(epoch).ok().filter(|epoch| is_epoch(epoch))?;
        let cursor = Cursor { fingerprint: *fingerprint, epoch: epoch.to_owned(), position: position.to_vec() };
        (cursor.checksum() == *checksum).then_some(cursor)
    }

    fn to_text(&self) -> String {
        let mut bytes = [&self.fingerprint[..], self.epoch.as_bytes(), &self.checksum()].concat();
        match str::from_utf8(&self.position) {
            Ok(name) if self.position.len() > MAX_ENCODED_BYTES => format!("{}~{name}", URL_SAFE_NO_PAD.encode(bytes)),
            _ => {
                bytes.extend(&self.position);
                URL_SAFE_NO_PAD.encode(bytes)
            }
        }
    }

    fn checksum(&self) -> [u8; CHECKSUM_BYTES] {
        first_bytes(Sha256::new().chain_update(self.fingerprint).chain_update(&self.epoch).chain_update(&self.position))
    }
}

fn first_bytes<const N: usize>(hash: Sha256) -> [u8; N] {
    let hash = hash.finalize();
    std::array::from_fn(|index| hash[index])
}

/// The position of a row in its list.
pub(crate) trait Position: Sized {
    fn to_bytes(&self) -> Vec<u8>;
    fn of_bytes(bytes: &[u8]) -> Option<Self>;
    /// Returns the position among the numbers that a history assigns.
    fn number(&self) -> i64;
}

/// The position of a row in a list that is in the order of ids.
impl Position for i64 {
    fn to_bytes(&self) -> Vec<u8> {
        self.to_be_bytes().to_vec()
    }

    fn of_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(i64::from_be_bytes).filter(|id| (0..=*limits::ID.end()).contains(id))
    }

    fn number(&self) -> i64 {
        *self
    }
}

/// The position of a row in a list that is in the order of names.
impl Position for String {
    fn to_bytes(&self) -> Vec<u8> {
        self.as_bytes().to_vec()
    }

    fn of_bytes(bytes: &[u8]) -> Option<Self> {
        let name = str::from_utf8(bytes).ok()?;
        text::check(name, limits::NAME_CHARS).is_ok().then(|| name.to_owned())
    }

    /// Returns 0, which is a number of the first history: names mean the same in all histories.
    fn number(&self) -> i64 {
        0
    }
}

/// Reads and issues the cursors of one list, under one filter and in one order.
pub(crate) struct ListCursors<'a> {
    engine: &'a Engine,
    numbers: Numbers,
    fingerprint: Fingerprint,
}

impl<'a> ListCursors<'a> {
    /// Returns the cursors of the list `name` of a namespace. Filters are the same if their JSON is.
    pub(crate) fn new(
        engine: &'a Engine,
        namespace: NamespaceId,
        name: &str,
        numbers: Numbers,
        descending: bool,
        filter: &impl Serialize,
    ) -> Result<Self, Error> {
        let list = serde_json::to_vec(&(namespace.0, name, descending, filter));
        let list = list.map_err(|error| Error::Internal(format!("a filter is not JSON: {error}")))?;
        Ok(ListCursors { engine, numbers, fingerprint: first_bytes(Sha256::new().chain_update(list)) })
    }

    /// Returns the position behind which the page of the cursor `after` begins.
    pub(crate) async fn position<P: Position>(&self, cursor: Option<Cursor>) -> Result<Option<P>, Error> {
        match cursor {
            Some(cursor) => self.position_of("after", cursor).await.map(Some),
            None => Ok(None),
        }
    }

    /// Returns the position of a cursor that was sent as `field`.
    pub(crate) async fn position_of<P: Position>(&self, field: &'static str, cursor: Cursor) -> Result<P, Error> {
        let mismatch = |reason| Error::CursorMismatch { field, reason };
        if cursor.fingerprint != self.fingerprint {
            return Err(mismatch("belongs to another list, namespace, filter or order"));
        }
        let position = P::of_bytes(&cursor.position).ok_or_else(|| Error::invalid(field, NOT_A_CURSOR))?;
        match self.engine.holds_cursor(&cursor.epoch, self.numbers, position.number()).await? {
            true => Ok(position),
            false => Err(mismatch("belongs to a state of the database that a restore has undone")),
        }
    }

    /// Returns the cursor to the page that begins behind `end`.
    pub(crate) async fn next<P: Position>(&self, end: Option<P>) -> Result<Option<String>, Error> {
        let Some(end) = end else { return Ok(None) };
        let epoch = self.engine.epoch_for_cursor(self.numbers, end.number()).await?;
        Ok(Some(self.template().at(&epoch, &end)))
    }

    /// Returns what the cursors of the list have in common.
    pub(crate) fn template(&self) -> CursorTemplate {
        CursorTemplate { fingerprint: self.fingerprint }
    }
}

/// What the cursors of one list have in common. Unlike [`ListCursors`], it can be kept.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CursorTemplate {
    fingerprint: Fingerprint,
}

impl CursorTemplate {
    /// Returns the cursor to what comes behind a position, which belongs to `epoch`.
    pub(crate) fn at(self, epoch: &str, position: &impl Position) -> String {
        Cursor { fingerprint: self.fingerprint, epoch: epoch.to_owned(), position: position.to_bytes() }.to_text()
    }
}

/// The reason for refusing `after` if it is not a cursor.
pub(crate) const NOT_A_CURSOR: &str = "must be the `next` of an earlier page";

#[cfg(test)]
mod tests {
    use super::*;

    fn cursor(position: &impl Position) -> Cursor {
        Cursor { fingerprint: *b"8 bytes.", epoch: "abcdefg2".to_owned(), position: position.to_bytes() }
    }

    /// Returns the position of a cursor after it was written and parsed.
    fn round_trip<P: Position>(position: &P) -> Option<P> {
        let cursor = cursor(position);
        let parsed = Cursor::parse(&cursor.to_text()).expect("a cursor");
        assert_eq!(parsed, cursor);
        P::of_bytes(&parsed.position)
    }

    #[test]
    fn a_cursor_keeps_its_position() {
        for id in [0, 1, 17, *limits::ID.end()] {
            assert_eq!(round_trip(&id), Some(id));
        }
        let longest = "\u{10ffff}".repeat(limits::NAME_CHARS);
        for name in ["a", "host~1:7", "ä;/?&=+%", &"x".repeat(limits::NAME_CHARS), &longest] {
            assert_eq!(round_trip(&name.to_owned()).as_deref(), Some(name));
        }
    }

    #[test]
    fn no_cursor_has_more_than_512_characters() {
        for bytes_per_character in ["x", "ä", "€", "\u{10ffff}"] {
            for length in 1..=limits::NAME_CHARS {
                let text = cursor(&bytes_per_character.repeat(length)).to_text();
                assert!(text.chars().count() <= MAX_CHARS, "{length} times {bytes_per_character}");
            }
        }
    }

    #[test]
    fn a_cursor_of_ordinary_names_needs_no_escapes_in_a_url() {
        let text = cursor(&"ä;/?&=+%#~:1".to_owned()).to_text();
        assert!(text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte)), "{text}");
    }

    #[test]
    fn a_cursor_with_any_character_changed_added_or_removed_is_refused() {
        let long = "\u{10ffff}".repeat(limits::NAME_CHARS);
        for text in [cursor(&17).to_text(), cursor(&"ann:1".to_owned()).to_text(), cursor(&long).to_text()] {
            for (index, character) in text.char_indices() {
                let (before, after) = (&text[..index], &text[index + character.len_utf8()..]);
                for other in
                    ["", "A", "B", "_", "~", "=", "ä", "AA"].into_iter().filter(|other| *other != character.to_string())
                {
                    let changed = format!("{before}{other}{after}");
                    assert_eq!(Cursor::parse(&changed), None, "{changed}");
                }
            }
            assert_eq!(Cursor::parse(&format!("{text}A")), None);
        }
    }

    #[test]
    fn text_that_is_no_cursor_is_refused() {
        for text in ["", "17", "x", "~", "abcdefg2_17", "%", &"A".repeat(MAX_CHARS), &"A".repeat(MAX_CHARS + 1)] {
            assert_eq!(Cursor::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_position_that_no_list_can_have_is_refused() {
        assert_eq!(i64::of_bytes(&(-1_i64).to_be_bytes()), None);
        assert_eq!(i64::of_bytes(&(limits::ID.end() + 1).to_be_bytes()), None);
        assert_eq!(i64::of_bytes(b"ann:1"), None);
        for name in [&b""[..], b"a\0b", b"\xff", "x".repeat(limits::NAME_CHARS + 1).as_bytes()] {
            assert_eq!(String::of_bytes(name), None, "{name:?}");
        }
    }
}
