//! Text of the server, made fit for a terminal.

use serde_json::Value;
use unicode_width::UnicodeWidthChar;

/// What stands for a character that is not printed.
const REPLACEMENT: char = '\u{fffd}';

/// Returns a text on one line, without control characters, escape sequences, and marks that reverse the direction of
/// writing.
pub(crate) fn clean(text: &str) -> String {
    text.chars().map(clean_char).collect()
}

fn clean_char(c: char) -> char {
    match c {
        '\n' | '\r' | '\t' => ' ',
        c if is_unsafe(c) => REPLACEMENT,
        c => c,
    }
}

/// Returns whether a character may change more of the screen than its own place.
pub(super) fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{061c}')
}

/// Returns how many columns a clean text takes.
pub(crate) fn width_of(text: &str) -> usize {
    text.chars().map(|c| c.width().unwrap_or(0)).sum()
}

/// Returns a text that takes at most so many columns. One that is cut ends with an ellipsis.
pub(crate) fn cut(text: &str, width: usize) -> String {
    if width_of(text) <= width {
        return text.to_owned();
    }
    let mut left = width.saturating_sub(1);
    let mut short = String::new();
    for c in text.chars() {
        let columns = c.width().unwrap_or(0);
        if columns > left {
            break;
        }
        left -= columns;
        short.push(c);
    }
    if width > 0 {
        short.push('…');
    }
    short
}

/// Returns a clean text as lines of at most so many columns, broken between words. A word that is longer has a line of
/// its own.
pub(crate) fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for next in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if width_of(line) + 1 + width_of(next) <= width => {
                line.push(' ');
                line.push_str(next);
            }
            _ => lines.push(next.to_owned()),
        }
    }
    lines
}

/// Returns a value as a word: strings without quotes, nothing for `null`.
pub(crate) fn word(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => clean(text),
        other => clean(&other.to_string()),
    }
}

/// Returns the first line of a text that has something on it. An ellipsis says that there are more.
pub(crate) fn first_line(value: &Value) -> String {
    let Some(text) = value.as_str() else { return word(value) };
    let mut lines = text.lines().filter(|line| !line.trim().is_empty());
    let first = lines.next().map(clean).unwrap_or_default();
    if lines.next().is_some() { format!("{} …", first.trim_end()) } else { first }
}

/// Returns the words of a list, separated by commas.
pub(crate) fn words(value: &Value) -> String {
    value.as_array().map(|items| items.iter().map(word).collect::<Vec<_>>().join(",")).unwrap_or_default()
}

/// Returns a count, with a `+` if there may be more.
pub(crate) fn count(value: &Value, is_exact: &Value) -> String {
    let more = if is_exact.as_bool() == Some(false) { "+" } else { "" };
    format!("{}{more}", word(value))
}

/// Returns a number with its noun: `1 event`, `2 events`.
pub(crate) fn plural(number: u64, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_the_server_can_control_the_terminal() {
        let text = "a\u{1b}[2J\u{1b}]0;x\u{7}b\u{9b}31m\u{8}\r\n\u{202e}c\u{7f}\u{200b}";
        let cleaned = clean(text);
        assert!(!cleaned.chars().any(is_unsafe), "{cleaned:?}");
        assert_eq!(cleaned, "a\u{fffd}[2J\u{fffd}]0;x\u{fffd}b\u{fffd}31m\u{fffd}  \u{fffd}c\u{fffd}\u{fffd}");
    }

    #[test]
    fn a_text_of_several_lines_is_cut_after_the_first() {
        let first = |text: &str| first_line(&Value::from(text));
        assert_eq!(first("one line"), "one line");
        assert_eq!(first("one line\n"), "one line");
        assert_eq!(first("\n  at a.rs:1\r\n\u{7}b"), "  at a.rs:1 …");
        assert_eq!(first_line(&Value::Null), "");
    }

    #[test]
    fn a_long_text_is_broken_between_words() {
        assert_eq!(wrapped("no worker asks for a", 9), ["no worker", "asks for", "a"]);
        assert_eq!(wrapped("a pg_terminate_backend b", 9), ["a", "pg_terminate_backend", "b"]);
        assert_eq!(wrapped("", 9), [""; 0]);
    }

    #[test]
    fn a_cut_text_fits_also_if_its_characters_are_wide() {
        assert_eq!(cut("abcdef", 6), "abcdef");
        assert_eq!(cut("abcdefg", 6), "abcde…");
        assert_eq!(cut("日本語です", 6), "日本…");
        assert_eq!(cut("日本語です", 0), "");
        assert_eq!(width_of("日本…"), 5);
    }
}
