//! The line of words that filters events: `status:FAILED tag:billing -type:test payload.order=17 since:24h timeout`.
//!
//! Each word becomes a parameter of `GET /events`, which checks it. So the line has the grammar of the API, with shorter
//! names, and can do nothing that the API cannot do.

use chrono::{DateTime, NaiveDate, SecondsFormat, TimeDelta, Utc};

use crate::domain::ids::EventId;
use crate::domain::limits;

/// The names of the line, and the parameters that they stand for. The first name of a parameter is the one that is shown.
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
    ("state", "status"),
    ("tags", "tags"),
    ("event_type", "event_type"),
    ("worker_id", "worker_id"),
    ("correlation_id", "correlation_id"),
    ("ordering_key", "ordering_key"),
];

/// Why a line is not understood.
#[derive(Debug, PartialEq)]
pub(super) struct LineError {
    pub reason: String,
    /// Lines that may have been meant.
    pub instead: Vec<String>,
}

impl From<String> for LineError {
    fn from(reason: String) -> Self {
        LineError { reason, instead: Vec::new() }
    }
}

/// A word that is not understood, and words that may have been meant.
struct WrongWord {
    reason: String,
    instead: Vec<String>,
}

/// Returns the parameters of a line, or what is wrong with it.
pub(super) fn parameters(line: &str, now: DateTime<Utc>) -> Result<Vec<(String, String)>, LineError> {
    let mut parameters: Vec<(String, String)> = Vec::new();
    let mut free_text: Vec<String> = Vec::new();
    let words = words(line);
    for (at, word) in words.iter().copied().enumerate() {
        // Quotes around a whole word make it text to search for, whatever it looks like.
        if word.starts_with('"') {
            free_text.push(unquoted(word));
            continue;
        }
        let (bare, sign, prefix) = match word.strip_prefix('-') {
            Some(rest) if !rest.is_empty() => (rest, "-", "not."),
            _ => (word, "", ""),
        };
        let text = unquoted(bare);
        let found = if bare.starts_with('"') { Ok(None) } else { parameter(&text, now) };
        let found = found.map_err(|wrong| wrong.in_line(&words, at, sign))?;
        match found {
            Some((name, value)) if name == "text" && prefix.is_empty() => free_text.push(value),
            Some((name, value)) => add(&mut parameters, format!("{prefix}{name}"), value)?,
            None if prefix.is_empty() => free_text.push(text),
            None => add(&mut parameters, "not.text".to_owned(), text)?,
        }
    }
    if !free_text.is_empty() {
        parameters.push(("text".to_owned(), free_text.join(" ")));
    }
    Ok(parameters)
}

impl WrongWord {
    /// Returns the error for the word at a position of its line, with whole lines as alternatives.
    fn in_line(self, words: &[&str], at: usize, sign: &str) -> LineError {
        let line_with = |word: String| {
            let mut words = words.to_vec();
            let signed = format!("{sign}{word}");
            words[at] = &signed;
            words.join(" ")
        };
        LineError { reason: self.reason, instead: self.instead.into_iter().map(line_with).collect() }
    }
}

/// Returns the event that a line names, if it is nothing but an id: `91`, or `id:91`, which cannot be a text.
pub(super) fn event_id(line: &str) -> Option<NamedEvent> {
    let line = line.trim();
    let named = line.get(..3).filter(|name| name.eq_ignore_ascii_case("id:")).map(|_| &line[3..]);
    let id = named.unwrap_or(line).parse().ok().filter(|id| limits::ID.contains(id))?;
    let is_digits = named.unwrap_or(line).bytes().all(|byte| byte.is_ascii_digit());
    is_digits.then_some(NamedEvent { id: EventId(id), is_sure: named.is_some() })
}

/// An event that a line names.
#[derive(Debug, PartialEq)]
pub(super) struct NamedEvent {
    pub id: EventId,
    /// Whether the line can mean nothing else.
    pub is_sure: bool,
}

/// Returns the parameter that a name stands for, in any case.
fn parameter_of(name: &str) -> Option<&'static str> {
    NAMES.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, parameter)| *parameter)
}

/// Returns how a parameter is written in a line: `-type:` for `not.event_type`.
pub(super) fn written(parameter: &str) -> String {
    let (sign, name) = parameter.strip_prefix("not.").map_or(("", parameter), |name| ("-", name));
    let known = NAMES.iter().find(|(_, known)| *known == name).map(|(word, _)| format!("{word}:"));
    let label = || name.strip_prefix("labels.").map(|label| format!("label.{label}"));
    format!("{sign}{}", known.or_else(label).unwrap_or_else(|| name.to_owned()))
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

/// Returns a line with one more word, or as it is if it has the word.
pub(super) fn with_word(line: &str, word: &str) -> String {
    match words(line) {
        words if words.contains(&word) => line.to_owned(),
        mut words => {
            words.push(word);
            words.join(" ")
        }
    }
}

/// Returns a line without its words for a parameter.
pub(super) fn without(line: &str, parameter: &str) -> String {
    let is_other = |word: &&str| match word.split_once(':') {
        Some((name, _)) if !word.starts_with('"') => parameter_of(name) != Some(parameter),
        _ => true,
    };
    words(line).into_iter().filter(is_other).collect::<Vec<_>>().join(" ")
}

/// Adds a parameter. Several tags are one list, and everything else can be given once.
fn add(parameters: &mut Vec<(String, String)>, name: String, value: String) -> Result<(), LineError> {
    let is_list = name == "tags" || name == "not.tags";
    match parameters.iter_mut().find(|(known, _)| *known == name) {
        Some((_, values)) if is_list => {
            values.push(',');
            values.push_str(&value);
        }
        Some(_) if name == "not.text" => return Err("Only one text can be excluded.".to_owned().into()),
        Some(_) => return Err(format!("{} can stand only once in a filter.", written(&name)).into()),
        None => parameters.push((name, value)),
    }
    Ok(())
}

/// Returns the parameter that a word stands for, or `None` if it is text to search for.
fn parameter(word: &str, now: DateTime<Utc>) -> Result<Option<(String, String)>, WrongWord> {
    if let Some((name, value)) = word.split_once('=') {
        if name.starts_with("payload.") || name.starts_with("labels.") {
            return Ok(Some((name.to_owned(), value.to_owned())));
        }
        if let Some(label) = name.strip_prefix("label.") {
            return Ok(Some((format!("labels.{label}"), value.to_owned())));
        }
    }
    let Some((name, value)) = word.split_once(':') else { return Ok(None) };
    let Some(parameter) = parameter_of(name) else { return check_text(name, value).map(|()| None) };
    let wrong = |reason| WrongWord { reason, instead: Vec::new() };
    if value.is_empty() {
        return Err(wrong(format!("{name}: needs a value, such as {name}:x")));
    }
    let value = match parameter {
        "since" | "until" => time(value, now).ok_or_else(|| {
            wrong(format!(
                "{name}:{value} is neither a date (2026-11-18), a time (2026-11-18T10:00:00Z) nor an age (90s, 15m, 24h, 7d)."
            ))
        })?,
        "status" => value.to_ascii_uppercase(),
        _ => value.to_owned(),
    };
    Ok(Some((parameter.to_owned(), value)))
}

/// Refuses a word that looks like a condition with a name that there is not: as a text it would find nothing, and say
/// nothing. An address and a time are no such words.
fn check_text(name: &str, value: &str) -> Result<(), WrongWord> {
    let is_name = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphabetic() || b"_.".contains(&byte));
    if !is_name || value.is_empty() || value.starts_with("//") {
        return Ok(());
    }
    let text = text_word(&format!("{name}:{value}"));
    let is_path = ["payload.", "label.", "labels."].iter().any(|prefix| name.starts_with(prefix));
    let meant = match is_path {
        true => Some(word(&format!("{name}="), value)),
        false if name == "id" => None,
        false => nearest(name).map(|known| word(&format!("{known}:"), value)),
    };
    let reason = match name {
        "id" => "id: names one event, as in id:91, and stands alone.".to_owned(),
        _ => format!("A filter has no word {name}:."),
    };
    Err(WrongWord { reason, instead: meant.into_iter().chain([text]).collect() })
}

/// Returns the name that differs least from another one, if it is not too different.
fn nearest(name: &str) -> Option<&'static str> {
    let name = name.to_ascii_lowercase();
    let distances = NAMES.iter().map(|(known, _)| (distance(&name, known), *known));
    distances.min_by_key(|(distance, _)| *distance).filter(|(distance, _)| *distance <= 2).map(|(_, known)| known)
}

/// Returns the number of letters to insert, remove or replace in order to make one word of the other.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.bytes().enumerate() {
            let cost = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = cost.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
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
        None if text.parse::<NaiveDate>().is_ok() => Some(format!("{text}T00:00:00Z")),
        None => DateTime::parse_from_rfc3339(text).ok().map(|_| text.to_owned()),
    }
}

/// Returns a line in which ages are the times that they mean now. A cursor belongs to these times, and an age is another
/// time with every second.
pub(super) fn with_times(line: &str, now: DateTime<Utc>) -> String {
    let at_time = |word: &str| {
        let (name, value) = word.split_once(':')?;
        let is_time = name.eq_ignore_ascii_case("since") || name.eq_ignore_ascii_case("until");
        Some(format!("{name}:{}", is_time.then(|| time(value, now)).flatten()?))
    };
    let words: Vec<String> =
        words(line).into_iter().map(|word| at_time(word).unwrap_or_else(|| word.to_owned())).collect();
    words.join(" ")
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
    format!("{beginning}{}", text_word(value))
}

/// Returns the word that searches for a text, whatever it looks like.
pub(super) fn text_word(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
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
        assert_eq!(read("since:2026-11-17"), pairs(&[("since", "2026-11-17T00:00:00Z")]));
        assert_eq!(
            read("Status:failed TAGS:a event_type:b worker_id:c:1"),
            pairs(&[("status", "FAILED"), ("tags", "a"), ("event_type", "b"), ("worker_id", "c:1")])
        );
        assert_eq!(read("text:a b"), pairs(&[("text", "a b")]));
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
        assert!(error.reason.contains("since:yesterday"), "{error:?}");
        assert!(parameters("tag:", Utc::now()).is_err());
        for (line, reason) in [
            ("-type:a -type:b", "-type: can stand only once in a filter."),
            ("-a -b", "Only one text can be excluded."),
            ("tag:a payload.b=1 payload.b=2", "payload.b can stand only once in a filter."),
        ] {
            assert_eq!(parameters(line, Utc::now()).unwrap_err().reason, reason);
        }
    }

    #[test]
    fn a_name_that_there_is_not_is_refused_with_what_may_be_meant() {
        for (line, instead) in [
            ("tag:a statuss:FAILED", &["tag:a status:FAILED", "tag:a \"statuss:FAILED\""][..]),
            ("-tpye:a", &["-type:a", "-\"tpye:a\""]),
            ("payload.order:17", &["payload.order=17", "\"payload.order:17\""]),
            ("localhost:5432", &["\"localhost:5432\""]),
        ] {
            let error = parameters(line, Utc::now()).unwrap_err();
            assert_eq!(error.instead, instead, "{}", error.reason);
            for line in &error.instead {
                parameters(line, Utc::now()).unwrap();
            }
        }
        assert_eq!(read("error: 10:02:11 https://x"), pairs(&[("text", "error: 10:02:11 https://x")]));
    }

    #[test]
    fn a_line_that_is_an_id_names_an_event() {
        let event = |id, is_sure| Some(NamedEvent { id: EventId(id), is_sure });
        assert_eq!((event_id(" 91 "), event_id("id:91")), (event(91, false), event(91, true)));
        assert_eq!((event_id("ID:7"), event_id("0091")), (event(7, true), event(91, false)));
        for line in ["", "id:", "0", "-1", "+1", "91 tag:a", "9007199254740992", "é1", "id:x"] {
            assert_eq!(event_id(line), None, "{line}");
        }
    }

    #[test]
    fn a_word_is_added_once_and_those_of_a_parameter_are_taken_out() {
        assert_eq!(with_word("status:FAILED  since:1h", "tag:a"), "status:FAILED since:1h tag:a");
        assert_eq!(with_word("tag:a status:FAILED", "tag:a"), "tag:a status:FAILED");
        assert_eq!(with_word("", "tag:a"), "tag:a");
        assert_eq!(without("status:FAILED -tag:a Status:x \"status:y\"", "status"), "-tag:a \"status:y\"");
    }
}
