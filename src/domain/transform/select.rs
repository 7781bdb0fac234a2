//! Selection of fields of a payload. The selected fields keep their order and their bytes.

use std::collections::BTreeMap;

use serde_json::value::RawValue;

use crate::domain::path::JsonPath;
use crate::domain::raw_entries::RawEntries;

/// Returns the fields of a payload that `keep` names, or all fields if `keep` is empty, without the
/// fields that `drop` names. All paths refer to the original payload: after `items.0` is dropped,
/// `items.1` still means the original second item. The remaining items of a list move together.
pub(super) fn select(payload: &str, keep: &[JsonPath], drop: &[JsonPath]) -> Result<String, String> {
    let (keep, drop) = (Branches::of(keep), Branches::of(drop));
    let keep = if keep.children.is_empty() { Keep::All } else { Keep::Under(&keep) };
    let selected = select_value(payload, keep, Some(&drop)).map_err(|error| format!("cannot be read: {error}"))?;
    Ok(selected.unwrap_or_else(|| empty_like(payload).to_owned()))
}

fn empty_like(payload: &str) -> &'static str {
    match payload.as_bytes().first() {
        Some(b'{') => "{}",
        Some(b'[') => "[]",
        _ => "null",
    }
}

/// A tree of paths, by their segments.
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

/// The part of a value that is kept.
#[derive(Clone, Copy)]
enum Keep<'b> {
    All,
    Under(&'b Branches),
}

impl Keep<'_> {
    /// Returns which part of a field or item is kept, or `None` if no path leads to it.
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

/// Returns the selected part of a value, or `None` if nothing of it is selected. Recurses only as
/// deep as the paths.
fn select_value(json: &str, keep: Keep<'_>, drop: Option<&Branches>) -> Result<Option<String>, serde_json::Error> {
    let drop = drop.filter(|branches| !branches.children.is_empty());
    if matches!(keep, Keep::All) && drop.is_none() {
        return Ok(Some(json.to_owned()));
    }
    let select_part = |name: &str, value: &RawValue| {
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
                if let Some(part) = select_part(&name, value)? {
                    parts.push(format!("{}:{part}", serde_json::to_string(&name)?));
                }
            }
            ('{', '}')
        }
        Some(b'[') => {
            for (index, value) in serde_json::from_str::<Vec<&RawValue>>(json)?.into_iter().enumerate() {
                parts.extend(select_part(&index.to_string(), value)?);
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
    fn dropped_fields_are_removed() {
        let payload = r#"{"a":{"b":1,"c":2},"d":"x"}"#;
        assert_eq!(selected(payload, &[], &["a.b", "d"]), r#"{"a":{"c":2}}"#);
        assert_eq!(selected(payload, &[], &["a.b", "a.c"]), r#"{"a":{},"d":"x"}"#);
        assert_eq!(selected(payload, &[], &["none", "d.e"]), payload);
        assert_eq!(selected(payload, &["a"], &["a.c"]), r#"{"a":{"b":1}}"#);
        assert_eq!(selected(payload, &["a"], &["a"]), "{}");
    }

    #[test]
    fn list_items_are_selected_by_their_original_index() {
        assert_eq!(selected("[1,2,3]", &[], &["0", "1"]), "[3]");
        assert_eq!(selected(r#"{"i":[{"s":1,"t":2},{"s":3}]}"#, &["i.0.s", "i.1"], &[]), r#"{"i":[{"s":1},{"s":3}]}"#);
    }

    #[test]
    fn keeping_fields_of_a_scalar_leaves_nothing() {
        assert_eq!(selected("null", &["a"], &[]), "null");
        assert_eq!(selected("5", &["a"], &[]), "null");
        assert_eq!(selected("[1]", &["a"], &[]), "[]");
        assert_eq!(selected("5", &[], &["a"]), "5");
    }

    #[test]
    fn the_deepest_payload_is_handled_without_deep_recursion() {
        let payload = format!(r#"{{"a":{}{}}}"#, "[".repeat(127), "]".repeat(127));
        assert_eq!(selected(&payload, &["a"], &["b"]), payload);
        let lists = format!("{}{}", "[".repeat(128), "]".repeat(128));
        assert_eq!(selected(&lists, &[], &[&["0"; 16].join(".")]).len(), 32);
    }

    proptest! {
        #[test]
        fn the_selection_is_valid_json(
            payload in crate::domain::transform::tests::any_json(),
            keep in prop::collection::vec("[ab01](\\.[ab01]){0,2}", 0..3),
            drop in prop::collection::vec("[ab01](\\.[ab01]){0,2}", 0..3),
        ) {
            let parse_paths = |paths: &[String]| paths.iter().map(|path| JsonPath::parse(path).unwrap()).collect::<Vec<_>>();
            let remaining = select(&payload.to_string(), &parse_paths(&keep), &parse_paths(&drop)).unwrap();
            let remaining: Value = serde_json::from_str(&remaining).unwrap();
            for path in parse_paths(&drop).iter().filter(|_| payload.is_object()) {
                let is_by_name = path.segments().iter().all(|segment| !segment.starts_with(['0', '1']));
                prop_assert!(!is_by_name || path.find(&remaining).is_none());
            }
        }
    }
}
