//! The line of words that filters events: `status:FAILED tag:billing -type:test payload.order=17 since:24h timeout`.
//!
//! Each word becomes a parameter of `GET /events`, which checks it. So the line has the grammar of the API, with shorter
//! names, and can do nothing that the API cannot do.

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};

/// The short names of the line, and the parameters that they stand for.
const NAMES: &[(&str, &str)] = &[
    ("status", "status"),
    ("tag", "tags"),
    ("type", "event_type"),
    ("worker", "worker_id"),
    ("correlation", "correlation_id"),
    ("key", "ordering_key"),
    ("since", "since"),
    ("until", "until"),
    ("text", "text"),
];

/// Returns the parameters of a line. The error is the word that nobody understands, with the reason.
pub(super) fn parameters(line: &str, now: DateTime<Utc>) -> Result<Vec<(String, String)>, String> {
    let mut parameters: Vec<(String, String)> = Vec::new();
    let mut free_text: Vec<String> = Vec::new();
    for word in words(line) {
        // Quotes around a whole word make it text to search for, whatever it looks like.
        if word.starts_with('"') {
            free_text.push(unquoted(word));
            continue;
        }
        let (word, prefix) = match word.strip_prefix('-') {
            Some(rest) if !rest.is_empty() => (rest, "not."),
            _ => (word, ""),
        };
        let text = unquoted(word);
        match parameter(&text, now)?.filter(|_| !word.starts_with('"')) {
            Some((name, value)) => add(&mut parameters, format!("{prefix}{name}"), value),
            None if prefix.is_empty() => free_text.push(text),
            None => add(&mut parameters, "not.text".to_owned(), text),
        }
    }
    if !free_text.is_empty() {
        parameters.push(("text".to_owned(), free_text.join(" ")));
    }
    Ok(parameters)
}

/// Returns each word of a line, with the line that is left without it.
pub(super) fn words_and_rests(line: &str) -> Vec<(&str, String)> {
    let words = words(line);
    let without = |at: usize| {
        let others: Vec<&str> =
            words.iter().enumerate().filter(|(other, _)| *other != at).map(|(_, word)| *word).collect();
        others.join(" ")
    };
    words.iter().enumerate().map(|(at, word)| (*word, without(at))).collect()
}

/// Adds a parameter. Several tags are one list.
fn add(parameters: &mut Vec<(String, String)>, name: String, value: String) {
    let is_list = name == "tags" || name == "not.tags";
    match parameters.iter_mut().find(|(known, _)| is_list && *known == name) {
        Some((_, values)) => {
            values.push(',');
            values.push_str(&value);
        }
        None => parameters.push((name, value)),
    }
}

/// Returns the parameter that a word stands for, or `None` if it is text to search for.
fn parameter(word: &str, now: DateTime<Utc>) -> Result<Option<(String, String)>, String> {
    if let Some((name, value)) = word.split_once('=') {
        if name.starts_with("payload.") || name.starts_with("labels.") {
            return Ok(Some((name.to_owned(), value.to_owned())));
        }
        if let Some(label) = name.strip_prefix("label.") {
            return Ok(Some((format!("labels.{label}"), value.to_owned())));
        }
    }
    let Some((name, value)) = word.split_once(':') else { return Ok(None) };
    let Some((_, parameter)) = NAMES.iter().find(|(known, _)| *known == name) else { return Ok(None) };
    if value.is_empty() {
        return Err(format!("{name}: needs a value, such as {name}:x"));
    }
    let value = match *parameter {
        "since" | "until" => time(value, now).ok_or_else(|| {
            format!("{name}:{value} is neither a time (2026-11-18T10:00:00Z) nor an age (90s, 15m, 24h, 7d)")
        })?,
        "status" => value.to_ascii_uppercase(),
        _ => value.to_owned(),
    };
    Ok(Some(((*parameter).to_owned(), value)))
}

/// Returns a time in the API's form, from such a time or an age.
pub(super) fn time(text: &str, now: DateTime<Utc>) -> Option<String> {
    let age = || {
        let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
        let number: i64 = number.parse().ok().filter(|number| (0..=1_000_000).contains(number))?;
        match unit {
            "s" => Some(TimeDelta::seconds(number)),
            "m" => Some(TimeDelta::minutes(number)),
            "h" => Some(TimeDelta::hours(number)),
            "d" => Some(TimeDelta::days(number)),
            _ => None,
        }
    };
    match age() {
        Some(age) => Some((now - age).to_rfc3339_opts(SecondsFormat::Secs, true)),
        None => DateTime::parse_from_rfc3339(text).ok().map(|_| text.to_owned()),
    }
}

/// Splits a line into words, as they are written. Quotes keep spaces together: `text:"card declined"`. Inside of quotes,
/// a backslash stands before a quote or a backslash that belongs to the text.
fn words(line: &str) -> Vec<&str> {
    let mut quotes = Quotes::default();
    let is_between = |character: char| quotes.pass(character) && character.is_whitespace() && !quotes.is_quoted;
    line.split(is_between).filter(|word| !word.is_empty()).collect()
}

/// Returns the text of a word, without its quotes.
fn unquoted(word: &str) -> String {
    let mut quotes = Quotes::default();
    word.chars().filter(|character| quotes.pass(*character)).collect()
}

/// Returns a word of the line, such as `tag:billing`, or `label.team=` with its value. Whatever the value contains, it
/// stays one word.
pub(super) fn word(beginning: &str, value: &str) -> String {
    if !value.contains(|character: char| character.is_whitespace() || "\"\\".contains(character)) {
        return format!("{beginning}{value}");
    }
    format!("{beginning}\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\""))
}

/// Where the reader of a line is.
#[derive(Default)]
struct Quotes {
    is_quoted: bool,
    is_escaped: bool,
}

impl Quotes {
    /// Passes a character. Returns whether it belongs to the text.
    fn pass(&mut self, character: char) -> bool {
        if std::mem::take(&mut self.is_escaped) {
            return true;
        }
        match character {
            '\\' if self.is_quoted => {
                self.is_escaped = true;
                false
            }
            '"' => {
                self.is_quoted = !self.is_quoted;
                false
            }
            _ => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Vec<(String, String)> {
        let now = DateTime::parse_from_rfc3339("2026-11-18T10:00:00Z").unwrap().to_utc();
        parameters(line, now).unwrap()
    }

    fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn words_become_parameters_of_the_api() {
        assert_eq!(
            read("status:failed tag:billing -type:test"),
            pairs(&[("status", "FAILED"), ("tags", "billing"), ("not.event_type", "test")])
        );
        assert_eq!(read("tag:a tag:b"), pairs(&[("tags", "a,b")]));
        assert_eq!(
            read("payload.order=17 -label.team=core"),
            pairs(&[("payload.order", "17"), ("not.labels.team", "core")])
        );
        assert_eq!(read("-tag:a -tag:b -status:failed"), pairs(&[("not.tags", "a,b"), ("not.status", "FAILED")]));
        assert_eq!(
            read("payload.name=\"Ann Lee\" labels.a=b=c"),
            pairs(&[("payload.name", "Ann Lee"), ("labels.a", "b=c")])
        );
        assert_eq!(read("since:24h"), pairs(&[("since", "2026-11-17T10:00:00Z")]));
    }

    #[test]
    fn other_words_are_text_to_search_for() {
        assert_eq!(read("card declined"), pairs(&[("text", "card declined")]));
        assert_eq!(read("\"card  declined\" https://x"), pairs(&[("text", "card  declined https://x")]));
        assert_eq!(read("-timeout"), pairs(&[("not.text", "timeout")]));
        assert_eq!(read("-\"card declined\""), pairs(&[("not.text", "card declined")]));
        assert_eq!(read("\"-5\" \"status:x\" -"), pairs(&[("text", "-5 status:x -")]));
        assert_eq!(read("\"open"), pairs(&[("text", "open")]));
        assert_eq!(read("   "), pairs(&[]));
    }

    #[test]
    fn a_value_stays_one_word_whatever_it_contains() {
        for value in ["k", "a b", "k until:2100-01-01T00:00:00Z", "\"", "a\" tag:b", "\\", "a\\", "\\\" x", "é  ü"] {
            let line = format!("status:PENDING {} tag:a", word("key:", value));
            assert_eq!(read(&line), pairs(&[("status", "PENDING"), ("ordering_key", value), ("tags", "a")]), "{line}");
        }
    }

    #[test]
    fn a_word_can_be_taken_out_of_its_line() {
        let line = " -type:test  \"card declined\" payload.a=\"b c\"";
        assert_eq!(
            words_and_rests(line),
            [
                ("-type:test", "\"card declined\" payload.a=\"b c\"".to_owned()),
                ("\"card declined\"", "-type:test payload.a=\"b c\"".to_owned()),
                ("payload.a=\"b c\"", "-type:test \"card declined\"".to_owned()),
            ]
        );
        assert!(words_and_rests("  ").is_empty());
    }

    #[test]
    fn a_word_that_is_wrong_is_named() {
        let error = parameters("since:yesterday", Utc::now()).unwrap_err();
        assert!(error.contains("since:yesterday"), "{error}");
        assert!(parameters("tag:", Utc::now()).is_err());
    }
}
