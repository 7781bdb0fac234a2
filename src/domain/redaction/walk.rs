//! Goes through the text of a JSON value and replaces what patterns match.
//!
//! One pass reads every byte once. It descends only where a pattern may still match, so no deeper than patterns are
//! long, and skips everything else without recursion: the nesting of the value does not matter.

use super::{ANY, REDACTED};
use crate::domain::path::parse_index;

/// The text is not JSON.
struct Malformed;

struct Walk<'a> {
    patterns: &'a [Vec<String>],
    text: &'a str,
    /// The position of the next byte.
    at: usize,
    out: String,
    /// The position up to which the text is in `out`.
    copied: usize,
}

/// Returns the text of a value with what patterns match replaced, or `None` if they match nothing. `live` has the bits of
/// the patterns whose first `depth` parts lead to this value. Text that is not JSON is replaced as a whole.
pub(super) fn redact(patterns: &[Vec<String>], live: u64, depth: usize, text: &str) -> Option<String> {
    if live == 0 {
        return None;
    }
    let mut walk = Walk { patterns, text, at: 0, out: String::new(), copied: 0 };
    let walked = walk.value(live, depth);
    walk.skip_space();
    if walked.is_err() || walk.at < text.len() {
        return Some(format!("\"{REDACTED}\""));
    }
    // What was replaced has left its mark there.
    (!walk.out.is_empty()).then(|| {
        walk.out.push_str(&text[walk.copied..]);
        walk.out
    })
}

impl Walk<'_> {
    fn value(&mut self, live: u64, depth: usize) -> Result<(), Malformed> {
        self.skip_space();
        if bits(live).any(|index| self.patterns[index].len() == depth) {
            let start = self.at;
            self.skip_value()?;
            self.out.push_str(&self.text[self.copied..start]);
            self.out.push('"');
            self.out.push_str(REDACTED);
            self.out.push('"');
            self.copied = self.at;
            return Ok(());
        }
        match self.peek() {
            Some(b'{') if live != 0 => self.object(live, depth),
            Some(b'[') if live != 0 => self.list(live, depth),
            _ => self.skip_value(),
        }
    }

    fn object(&mut self, live: u64, depth: usize) -> Result<(), Malformed> {
        self.at += 1;
        self.skip_space();
        if self.take(b'}') {
            return Ok(());
        }
        loop {
            self.skip_space();
            let start = self.at;
            self.skip_string()?;
            let name = name_of(&self.text[start..self.at]);
            let next = self.following(live, depth, |part| name.as_deref() == Some(part));
            self.skip_space();
            if !self.take(b':') {
                return Err(Malformed);
            }
            self.value(next, depth + 1)?;
            if self.ends(b'}')? {
                return Ok(());
            }
        }
    }

    fn list(&mut self, live: u64, depth: usize) -> Result<(), Malformed> {
        self.at += 1;
        self.skip_space();
        if self.take(b']') {
            return Ok(());
        }
        for index in 0.. {
            let next = self.following(live, depth, |part| parse_index(part) == Some(index));
            self.value(next, depth + 1)?;
            if self.ends(b']')? {
                break;
            }
        }
        Ok(())
    }

    /// Returns those of the patterns that go on with a key or an index.
    fn following(&self, live: u64, depth: usize, is_meant: impl Fn(&str) -> bool) -> u64 {
        let goes_on =
            |index: &usize| self.patterns[*index].get(depth).is_some_and(|part| part == ANY || is_meant(part));
        bits(live).filter(goes_on).fold(0, |all, index| all | (1 << index))
    }

    /// Returns whether an object or a list ends here, after one of its values. Otherwise passes the comma.
    fn ends(&mut self, close: u8) -> Result<bool, Malformed> {
        self.skip_space();
        match self.take(close) {
            true => Ok(true),
            false if self.take(b',') => Ok(false),
            false => Err(Malformed),
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn take(&mut self, byte: u8) -> bool {
        let is_next = self.peek() == Some(byte);
        self.at += usize::from(is_next);
        is_next
    }

    fn skip_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn skip_value(&mut self) -> Result<(), Malformed> {
        match self.peek() {
            Some(b'"') => self.skip_string(),
            Some(b'{' | b'[') => self.skip_nested(),
            Some(b'-' | b'0'..=b'9' | b't' | b'f' | b'n') => {
                while matches!(self.peek(), Some(b'-' | b'+' | b'.' | b'0'..=b'9' | b'a'..=b'z' | b'E')) {
                    self.at += 1;
                }
                Ok(())
            }
            _ => Err(Malformed),
        }
    }

    /// Skips an object or a list with all that is in it.
    fn skip_nested(&mut self) -> Result<(), Malformed> {
        let mut open = 0_usize;
        loop {
            match self.peek().ok_or(Malformed)? {
                b'"' => {
                    self.skip_string()?;
                    continue;
                }
                b'{' | b'[' => open += 1,
                b'}' | b']' => open -= 1,
                _ => {}
            }
            self.at += 1;
            if open == 0 {
                return Ok(());
            }
        }
    }

    fn skip_string(&mut self) -> Result<(), Malformed> {
        if !self.take(b'"') {
            return Err(Malformed);
        }
        loop {
            match self.peek().ok_or(Malformed)? {
                b'"' => break,
                b'\\' => self.at += 2,
                _ => self.at += 1,
            }
        }
        self.at += 1;
        Ok(())
    }
}

/// Returns the name in quotes, with its escapes resolved. No pattern names one whose escapes stand for no text.
fn name_of(quoted: &str) -> Option<std::borrow::Cow<'_, str>> {
    match quoted.contains('\\') {
        true => serde_json::from_str::<String>(quoted).ok().map(Into::into),
        false => Some(quoted[1..quoted.len() - 1].into()),
    }
}

/// Returns the positions of the bits that are set.
fn bits(mut live: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let index = live.trailing_zeros() as usize;
        (live != 0).then(|| {
            live &= live - 1;
            index
        })
    })
}
