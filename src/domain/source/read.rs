//! Parsing and changing of the settings of sources.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::incoming::BODY_LABELS;
use super::value_from::{ValueFrom, check_event_type};
use super::{Respond, SourceSecret, SourceSpec, Verify, preset};
use crate::domain::input::Fields;
use crate::domain::invalid::Invalid;
use crate::domain::limits;
use crate::domain::tags::Tags;

/// The fields of a source.
type SpecFields<'a> = Fields<'a, &'a Value>;

impl SourceSpec {
    /// Parses a source, or returns all errors in it. `null` means absent. An absent field has the value of the
    /// provider, or its default if there is no provider.
    pub(crate) fn parse(given: &Map<String, Value>) -> Result<Self, Vec<Invalid>> {
        let merged = with_preset(given);
        let mut fields = SpecFields::of_object(&merged);
        let name = fields.required("name", |fields, name| {
            fields.parse_text(name, |text| check_event_type(text).map(|()| text.to_owned()))
        });
        let has_provider = fields.is_given("provider");
        let provider = fields.choice("provider", preset::provider, &preset::names());
        let verify = match has_provider && provider.is_none() {
            // An unknown provider might have filled in anything.
            true => fields.take("verify").and(None),
            false => {
                fields.required("verify", |fields, name| fields.parse_all(name, |value| Verify::parse(object(value)?)))
            }
        };
        let spec = SourceSpec {
            name: name.unwrap_or_default(),
            provider,
            verify: verify.unwrap_or(Verify::None),
            event_type_from: fields.parse_all("event_type_from", ValueFrom::parse_event_type),
            idempotency_key_from: fields.parse_all("idempotency_key_from", ValueFrom::parse_key),
            tags: fields.parse("tags", parse_tags).unwrap_or_default(),
            labels: take_labels(&mut fields).unwrap_or_default(),
            respond: fields.parse_all("respond", Respond::parse).unwrap_or_default(),
        };
        fields.finish_object().map(|()| spec)
    }

    /// Parses a source with its first secret, which is a field of `verify`.
    pub(crate) fn parse_new(mut given: Map<String, Value>) -> Result<(Self, Option<SourceSecret>), Vec<Invalid>> {
        let secret = given.get_mut("verify").and_then(Value::as_object_mut).and_then(|verify| verify.remove("secret"));
        let spec = Self::parse(&given)?;
        spec.check_secret_headers()?;
        let refuse = |reason: &str| vec![Invalid::new("verify.secret", reason)];
        match secret {
            None | Some(Value::Null) if spec.verify.needs_secret() => Err(refuse("is required")),
            None | Some(Value::Null) => Ok((spec, None)),
            Some(Value::String(text)) => match spec.verify.parse_secret(&text) {
                Ok(secret) => Ok((spec, Some(secret))),
                Err(reason) => Err(refuse(&reason)),
            },
            Some(_) => Err(refuse("must be a string")),
        }
    }

    /// Returns the source that has `changes` in the place of its `present` fields, or all errors in it. `null` restores
    /// the default of a field. The fields of `verify` are merged. Its scheme and the provider stay: secrets belong to
    /// a scheme.
    pub(crate) fn changed(
        mut present: Map<String, Value>,
        mut changes: Map<String, Value>,
    ) -> Result<Self, Vec<Invalid>> {
        const FIXED: &str = "cannot be changed: make another source";
        let scheme = present.get("verify").and_then(|verify| verify.get("scheme")).cloned();
        let mut errors = Vec::new();
        if changes.get("provider").is_some_and(|provider| Some(provider) != present.get("provider")) {
            errors.push(Invalid::new("provider", FIXED));
        }
        if let (Some(Value::Object(changed)), Some(Value::Object(verify))) =
            (changes.get_mut("verify"), present.get_mut("verify"))
        {
            if changed.get("scheme").is_some_and(|scheme| Some(scheme) != verify.get("scheme")) {
                errors.push(Invalid::new("verify.scheme", FIXED));
            }
            if changed.contains_key("secret") {
                errors.push(Invalid::new("verify.secret", "is changed by POST /sources/{id}/rotate-secret"));
            }
            verify.extend(std::mem::take(changed));
            changes.remove("verify");
        }
        if !errors.is_empty() {
            return Err(errors);
        }
        present.extend(changes);
        let spec = Self::parse(&present)?;
        spec.check_secret_headers()?;
        // The provider's scheme, which `null` restores, may be another one.
        match scheme.is_some_and(|scheme| scheme == spec.verify.scheme()) {
            true => Ok(spec),
            false => Err(vec![Invalid::new("verify.scheme", FIXED)]),
        }
    }

    /// Returns the tags that `changes` set, or `None` if they set none or are invalid.
    pub(crate) fn changed_tags(changes: &Map<String, Value>) -> Option<Tags> {
        match changes.get("tags")? {
            Value::Null => Some(Tags::default()),
            tags => parse_tags(tags).ok(),
        }
    }

    /// Refuses to take values from headers that carry secrets: the types and keys of events are shown to all who may
    /// read. Stored sources are not checked, so that those of earlier versions still accept webhooks.
    fn check_secret_headers(&self) -> Result<(), Vec<Invalid>> {
        let fields = [("event_type_from", &self.event_type_from), ("idempotency_key_from", &self.idempotency_key_from)];
        let carries_secret = |from: &Option<ValueFrom>| match from {
            Some(ValueFrom::Header(name)) => self.verify.has_secret_in(name),
            _ => false,
        };
        let refused = fields.into_iter().filter(|(_, from)| carries_secret(from));
        let reason = "must not be a header that carries a secret";
        let errors: Vec<_> = refused.map(|(field, _)| Invalid::new("header", reason).inside(field)).collect();
        if errors.is_empty() { Ok(()) } else { Err(errors) }
    }
}

/// Returns the fields of a source with those of its provider where it has none.
fn with_preset(given: &Map<String, Value>) -> Map<String, Value> {
    let mut merged = given.clone();
    let provider = given.get("provider").and_then(Value::as_str).unwrap_or_default();
    for (name, mut value) in preset::settings(provider) {
        match (merged.get_mut(&name), &mut value) {
            (None | Some(Value::Null), _) => drop(merged.insert(name, value)),
            (Some(Value::Object(own)), Value::Object(preset)) if name == "verify" => add_scheme(own, preset),
            _ => {}
        }
    }
    merged
}

/// Adds the settings of a provider's scheme to `own`, unless that names another scheme.
fn add_scheme(own: &mut Map<String, Value>, preset: &mut Map<String, Value>) {
    if own.get("scheme").is_none_or(|scheme| scheme.is_null() || Some(scheme) == preset.get("scheme")) {
        for (name, value) in std::mem::take(preset) {
            if own.get(&name).is_none_or(Value::is_null) {
                own.insert(name, value);
            }
        }
    }
}

fn object(value: &Value) -> Result<&Map<String, Value>, Vec<Invalid>> {
    value.as_object().ok_or_else(|| vec![Invalid::new("", "must be an object with a scheme")])
}

fn parse_tags(value: &Value) -> Result<Tags, Invalid> {
    let words: Option<Vec<&str>> = value.as_array().and_then(|items| items.iter().map(Value::as_str).collect());
    let words = words.ok_or_else(|| Invalid::new("", "must be a list of strings"))?;
    Tags::from_words(words).map_err(|reason| Invalid::new("", reason))
}

fn take_labels(fields: &mut SpecFields<'_>) -> Option<BTreeMap<String, String>> {
    let labels = fields.labels("labels")?;
    if labels.len() > limits::SOURCE_LABELS {
        fields.refuse("labels", format!("must be at most {} pairs", limits::SOURCE_LABELS));
    }
    for reserved in BODY_LABELS.into_iter().filter(|name| labels.contains_key(*name)) {
        fields.refuse_inside("labels", Invalid::new(reserved, "is set by the server, if the body is not JSON"));
    }
    Some(labels)
}
