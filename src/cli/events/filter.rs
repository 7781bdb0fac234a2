//! The conditions on events, as the query of a list and as the filter of an action on many.

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use serde_json::{Map, Value, json};

use crate::cli::client::Query;
use crate::cli::error::CliError;
use crate::config::EventFilterArgs;

impl EventFilterArgs {
    /// Returns whether there is no condition at all.
    pub(super) fn is_empty(&self) -> bool {
        self.fields().iter().all(|(_, value)| value.is_none())
            && self.label.is_empty()
            && self.payload.is_empty()
            && self.not.is_empty()
            && self.since.is_none()
            && self.until.is_none()
    }

    /// Returns the simple conditions by their names in the API.
    fn fields(&self) -> [(&'static str, Option<&str>); 7] {
        [
            ("status", self.status.as_deref()),
            ("tags", self.tags.as_deref()),
            ("event_type", self.event_type.as_deref()),
            ("worker_id", self.worker.as_deref()),
            ("correlation_id", self.correlation_id.as_deref()),
            ("ordering_key", self.ordering_key.as_deref()),
            ("text", self.text.as_deref()),
        ]
    }

    /// Adds the conditions to the query of a list.
    pub(super) fn add_to(&self, mut query: Query) -> Result<Query, CliError> {
        for (name, value) in self.fields() {
            query = query.maybe(name, value.map(|value| as_sent(name, value)));
        }
        for (name, value) in &self.label {
            query = query.with(&format!("labels.{name}"), value);
        }
        for (path, value) in &self.payload {
            query = query.with(&format!("payload.{path}"), value);
        }
        for (field, value) in &self.not {
            let field = excluded(field);
            query = query.with(&format!("not.{field}"), as_sent(&field, value));
        }
        Ok(query
            .maybe("since", time_of("--since", self.since.as_deref())?)
            .maybe("until", time_of("--until", self.until.as_deref())?))
    }

    /// Returns the conditions as the filter of an action on many.
    pub(super) fn to_json(&self) -> Result<Map<String, Value>, CliError> {
        let mut filter = Map::new();
        for (name, value) in self.fields() {
            if let Some(value) = value {
                insert(&mut filter, name, value);
            }
        }
        for (name, value) in &self.label {
            insert(&mut filter, &format!("labels.{name}"), value);
        }
        for (path, value) in &self.payload {
            insert(&mut filter, &format!("payload.{path}"), value);
        }
        let mut not = Map::new();
        for (field, value) in &self.not {
            insert(&mut not, &excluded(field), value);
        }
        if !not.is_empty() {
            filter.insert("not".to_owned(), Value::Object(not));
        }
        for (name, time) in [("since", &self.since), ("until", &self.until)] {
            if let Some(time) = time_of(&format!("--{name}"), time.as_deref())? {
                filter.insert(name.to_owned(), json!(time));
            }
        }
        Ok(filter)
    }
}

/// Returns the API's name of a field that `--not` names.
fn excluded(field: &str) -> String {
    match field {
        "type" => "event_type".to_owned(),
        "worker" => "worker_id".to_owned(),
        // Dashes stand for underscores only in the names of fields, not in those of labels and paths.
        field if field.contains('.') => field.to_owned(),
        field => field.replace('-', "_"),
    }
}

/// Returns a value as the API spells it: states are in capitals.
fn as_sent(name: &str, value: &str) -> String {
    if name == "status" { value.to_uppercase() } else { value.to_owned() }
}

fn insert(filter: &mut Map<String, Value>, name: &str, value: &str) {
    let (name, inner) = name.split_once('.').unwrap_or((name, ""));
    match (name, inner) {
        ("tags", "") => {
            filter.insert(name.to_owned(), value.split(',').map(|tag| json!(tag.trim())).collect());
        }
        (name, "") => {
            filter.insert(name.to_owned(), json!(as_sent(name, value)));
        }
        (name, inner) => {
            let conditions = filter.entry(name).or_insert_with(|| json!({}));
            conditions[inner] = json!(value);
        }
    }
}

/// Returns a time as the API takes it. One like `15m` is so long ago.
pub(in crate::cli) fn time_of(flag: &str, text: Option<&str>) -> Result<Option<String>, CliError> {
    let Some(text) = text else { return Ok(None) };
    if let Some(ago) = ago(text) {
        return Ok(Some((Utc::now() - ago).to_rfc3339_opts(SecondsFormat::Micros, true)));
    }
    match DateTime::parse_from_rfc3339(text) {
        Ok(_) => Ok(Some(text.to_owned())),
        Err(_) => {
            Err(CliError::Usage(format!("{flag} must be a time such as 2026-03-09T08:15:00Z, or 90s, 15m, 24h or 7d")))
        }
    }
}

/// Reads `90s`, `15m`, `24h` or `7d`, up to a hundred years.
fn ago(text: &str) -> Option<TimeDelta> {
    let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        "d" => 86_400,
        _ => return None,
    };
    let seconds = number.parse::<u32>().ok().map(|number| i64::from(number) * seconds)?;
    (seconds <= 100 * 365 * 86_400).then(|| TimeDelta::seconds(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(name: &str, value: &str) -> (String, String) {
        (name.to_owned(), value.to_owned())
    }

    fn filter() -> EventFilterArgs {
        EventFilterArgs {
            status: Some("failed".to_owned()),
            tags: Some("a,b".to_owned()),
            payload: vec![pair("order.id", "17")],
            label: vec![pair("team-name", "core & co")],
            not: vec![pair("type", "test"), pair("labels.my-env", "dev"), pair("correlation-id", "x")],
            since: Some("2026-03-09T08:15:00+01:00".to_owned()),
            ..EventFilterArgs::default()
        }
    }

    #[test]
    fn conditions_become_a_query() {
        let query = filter().add_to(Query::new("/events")).unwrap().to_string();
        assert_eq!(
            query,
            "/events?status=FAILED&tags=a%2Cb&labels.team-name=core+%26+co&payload.order.id=17&not.event_type=test\
             &not.labels.my-env=dev&not.correlation_id=x&since=2026-03-09T08%3A15%3A00%2B01%3A00"
        );
    }

    #[test]
    fn conditions_become_a_filter() {
        let json = json!({
            "status": "FAILED",
            "tags": ["a", "b"],
            "labels": {"team-name": "core & co"},
            "payload": {"order.id": "17"},
            "not": {"event_type": "test", "labels": {"my-env": "dev"}, "correlation_id": "x"},
            "since": "2026-03-09T08:15:00+01:00",
        });
        assert_eq!(Value::Object(filter().to_json().unwrap()), json);
        assert!(EventFilterArgs::default().is_empty() && !filter().is_empty());
    }

    #[test]
    fn times_may_be_told_from_now() {
        assert_eq!(ago("15m"), Some(TimeDelta::minutes(15)));
        assert_eq!((ago("15"), ago(""), ago("m"), ago("9999999d"), ago("ä")), (None, None, None, None, None));
        assert!(time_of("--since", Some("yesterday")).is_err());
    }
}
