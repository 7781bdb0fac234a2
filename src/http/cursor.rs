//! Cursors of lists that are sorted by id: `next` in a response, `after` in the request for the next
//! page.
//!
//! A cursor contains the epoch of the database (see [`crate::domain::history`]). After a restore,
//! the same position belongs to another history and would silently skip or repeat rows.

use crate::domain::history::{Numbers, is_epoch};
use crate::engine::Engine;
use crate::error::Error;

/// The end of a page.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Cursor {
    epoch: String,
    position: i64,
}

impl Cursor {
    /// Parses a cursor of any history.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (epoch, digits) = text.split_once('_').filter(|(epoch, _)| is_epoch(epoch))?;
        let is_plain = (1..=19).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit());
        let position = digits.parse().ok().filter(|_| is_plain)?;
        Some(Cursor { epoch: epoch.to_owned(), position })
    }

    /// Returns the position, or an error if the cursor is from a history that a restore has ended.
    async fn position(self, engine: &Engine, numbers: Numbers) -> Result<i64, Error> {
        match engine.holds_cursor(&self.epoch, numbers, self.position).await? {
            true => Ok(self.position),
            false => {
                Err(Error::invalid("after", "is from before the database was restored; begin again at the first page"))
            }
        }
    }
}

/// Returns the position after which the page of a cursor begins.
pub(crate) async fn position_of(
    cursor: Option<Cursor>,
    engine: &Engine,
    numbers: Numbers,
) -> Result<Option<i64>, Error> {
    match cursor {
        Some(cursor) => cursor.position(engine, numbers).await.map(Some),
        None => Ok(None),
    }
}

/// Returns the cursor to the page after `position`, as text.
pub(crate) async fn next_cursor(
    position: Option<i64>,
    engine: &Engine,
    numbers: Numbers,
) -> Result<Option<String>, Error> {
    let Some(position) = position else { return Ok(None) };
    Ok(Some(format!("{}_{position}", engine.epoch_for_cursor(numbers, position).await?)))
}

#[cfg(test)]
mod tests {
    use super::Cursor;

    #[test]
    fn a_cursor_is_an_epoch_and_a_position() {
        let cursor = Cursor { epoch: "abcdefg2".to_owned(), position: 17 };
        assert_eq!(Cursor::parse("abcdefg2_17"), Some(cursor));
        for text in
            ["", "17", "_17", "abcdefg2", "abcdefg2_", "abcdefg2_-1", "abcdefg2_+1", "ABCDEFG2_17", "abcdefg2_1x"]
        {
            assert_eq!(Cursor::parse(text), None, "{text}");
        }
        assert_eq!(Cursor::parse("abcdefg2_9999999999999999999"), None);
    }
}
