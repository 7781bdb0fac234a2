//! Selecting fields of a payload. What stays keeps its order and its spelling.

use std::collections::BTreeMap;

use serde_json::value::RawValue;

use crate::domain::path::JsonPath;
use crate::domain::raw_entries::RawEntries;

/// Leaves of a payload what `keep` names, or all of it if that is empty, without what `drop`
/// names. All paths are those of the payload as it came, so that dropping `items.0` does not
/// move `items.1`; of a list the rest closes up.
pub(super) fn select(payload: &str, keep: &[JsonPath], drop: &[JsonPath]) -> Result<String, String> {
    let (keep, drop) = (Branches::of(keep), Branches::of(drop));
    let keep = if keep.children.is_empty() { Keep::All } else { Keep::Under(&keep) };
    let selected = select_value(payload, keep, Some(&drop)).map_err(|error| format!("cannot be read: {error}"))?;
    Ok(selected.unwrap_or_else(|| nothing_of(payload).to_owned()))
}

fn nothing_of(payload: &str) -> &'static str {
    match payload.as_bytes().first() {
        Some(b'{') => "{}",
        Some(b'[') => "[]",
        _ => "null",
    }
}

/// Paths, by their first segments.
#[derive(Debug, Default)]
struct Branches {
    is_end: bool,
    children: BTreeMap<String, Branches>,
}

impl Branches {
    fn of(paths: &[JsonPath]) -> Self {
        let mut root = Self::default();
        for path in paths {
            let mut branch = &mut root;
            for segment in path.segments() {
                branch = branch.children.entry(segment.clone()).or_default();
            }
            branch.is_end = true;
        }
        root
    }
}

/// What is kept of a value.
#[derive(Clone, Copy)]
enum Keep<'b> {
    All,
    Under(&'b Branches),
}

impl<'b> Keep<'b> {
    /// What is kept of a part; nothing, if it is not named.
    fn of_part(self, name: &str) -> Option<Self> {
        match self {
            Keep::All => Some(Keep::All),
            Keep::Under(branches) => {
                let part = branches.children.get(name)?;
                Some(if part.is_end { Keep::All } else { Keep::Under(part) })
            }
        }
    }
}

/// What is left of a value, if any of it was asked for. It goes no deeper than the paths do.
fn select_value(json: &str, keep: Keep<'_>, drop: Option<&Branches>) -> Result<Option<String>, serde_json::Error> {
    let drop = drop.filter(|branches| !branches.children.is_empty());
    if matches!(keep, Keep::All) && drop.is_none() {
        return Ok(Some(json.to_owned()));
    }
    let of_part = |name: &str, value: &RawValue| {
        let dropped = drop.and_then(|branches| branches.children.get(name));
        match keep.of_part(name) {
            Some(kept) if !dropped.is_some_and(|branch| branch.is_end) => select_value(value.get(), kept, dropped),
            _ => Ok(None),
        }
    };
    let mut parts = Vec::new();
    let (open, close) = match json.as_bytes().first() {
        Some(b'{') => {
            for (name, value) in serde_json::from_str::<RawEntries<'_>>(json)?.0 {
                if let Some(part) = of_part(&name, value)? {
                    parts.push(format!("{}:{part}", serde_json::to_string(&name)?));
                }
            }
            ('{', '}')
        }
        Some(b'[') => {
            for (index, value) in serde_json::from_str::<Vec<&RawValue>>(json)?.into_iter().enumerate() {
                parts.extend(of_part(&index.to_string(), value)?);
            }
            ('[', ']')
        }
        _ => return Ok(matches!(keep, Keep::All).then(|| json.to_owned())),
    };
    if parts.is_empty() && matches!(keep, Keep::Under(_)) {
        return Ok(None);
    }
    Ok(Some(format!("{open}{}{close}", parts.join(","))))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    fn selected(payload: &str, keep: &[&str], drop: &[&str]) -> String {
        let paths = |texts: &[&str]| texts.iter().map(|text| JsonPath::parse(text).unwrap()).collect::<Vec<_>>();
        select(payload, &paths(keep), &paths(drop)).unwrap()
    }

    #[test]
    fn kept_fields_keep_their_order_and_spelling() {
        let payload = r#"{"z":1.10,"a":{"c":[1, 2],"b":12345678901234567890123},"m":null}"#;
        assert_eq!(selected(payload, &["a.b", "z"], &[]), r#"{"z":1.10,"a":{"b":12345678901234567890123}}"#);
        assert_eq!(selected(payload, &["a", "a.b"], &[]), r#"{"a":{"c":[1, 2],"b":12345678901234567890123}}"#);
        assert_eq!(selected(payload, &["m", "none", "z.deeper", "a.none"], &[]), r#"{"m":null}"#);
        assert_eq!(selected(payload, &["none"], &[]), "{}");
    }

    #[test]
    fn dropped_fields_are_gone() {
        let payload = r#"{"a":{"b":1,"c":2},"d":"x"}"#;
        assert_eq!(selected(payload, &[], &["a.b", "d"]), r#"{"a":{"c":2}}"#);
        assert_eq!(selected(payload, &[], &["a.b", "a.c"]), r#"{"a":{},"d":"x"}"#);
        assert_eq!(selected(payload, &[], &["none", "d.e"]), payload);
        assert_eq!(selected(payload, &["a"], &["a.c"]), r#"{"a":{"b":1}}"#);
        assert_eq!(selected(payload, &["a"], &["a"]), "{}");
    }

    #[test]
    fn items_of_lists_go_by_the_places_they_came_in() {
        assert_eq!(selected("[1,2,3]", &[], &["0", "1"]), "[3]");
        assert_eq!(selected(r#"{"i":[{"s":1,"t":2},{"s":3}]}"#, &["i.0.s", "i.1"], &[]), r#"{"i":[{"s":1},{"s":3}]}"#);
    }

    #[test]
    fn what_has_no_fields_has_none_to_keep() {
        assert_eq!(selected("null", &["a"], &[]), "null");
        assert_eq!(selected("5", &["a"], &[]), "null");
        assert_eq!(selected("[1]", &["a"], &[]), "[]");
        assert_eq!(selected("5", &[], &["a"]), "5");
    }

    #[test]
    fn a_payload_as_deep_as_can_be_is_not_followed() {
        let payload = format!(r#"{{"a":{}{}}}"#, "[".repeat(127), "]".repeat(127));
        assert_eq!(selected(&payload, &["a"], &["b"]), payload);
        let lists = format!("{}{}", "[".repeat(128), "]".repeat(128));
        assert_eq!(selected(&lists, &[], &[&["0"; 16].join(".")]).len(), 32);
    }

    proptest! {
        #[test]
        fn what_is_left_is_json(
            payload in crate::domain::transform::tests::any_json(),
            keep in prop::collection::vec("[ab01](\\.[ab01]){0,2}", 0..3),
            drop in prop::collection::vec("[ab01](\\.[ab01]){0,2}", 0..3),
        ) {
            let texts = |paths: &[String]| paths.iter().map(|path| JsonPath::parse(path).unwrap()).collect::<Vec<_>>();
            let left = select(&payload.to_string(), &texts(&keep), &texts(&drop)).unwrap();
            let left: Value = serde_json::from_str(&left).unwrap();
            for path in texts(&drop).iter().filter(|_| payload.is_object()) {
                let is_by_name = path.segments().iter().all(|segment| !segment.starts_with(['0', '1']));
                prop_assert!(!is_by_name || path.find(&left).is_none());
            }
        }
    }
}
