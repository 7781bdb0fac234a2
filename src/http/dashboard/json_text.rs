//! JSON for people: indented, with every number and string as it was sent.

const INDENT: &str = "  ";

/// Indents a JSON text. Numbers keep all their digits and strings their escapes, because nothing is parsed. Stops after
/// about `max_bytes`; returns whether that was the end.
pub(super) fn pretty(json: &str, max_bytes: usize) -> (String, bool) {
    let mut text = String::with_capacity(json.len().min(max_bytes) * 2);
    let mut depth = 0_usize;
    let mut in_string = false;
    let mut is_escaped = false;
    let mut characters = json.chars().peekable();
    while let Some(character) = characters.next() {
        if text.len() >= max_bytes {
            return (text, false);
        }
        if in_string {
            text.push(character);
            (in_string, is_escaped) = match character {
                '"' if !is_escaped => (false, false),
                '\\' => (true, !is_escaped),
                _ => (true, false),
            };
            continue;
        }
        match character {
            '"' => {
                in_string = true;
                text.push('"');
            }
            '{' | '[' => {
                while characters.next_if(char::is_ascii_whitespace).is_some() {}
                text.push(character);
                if let Some(end) = characters.next_if(|next| matches!(next, '}' | ']')) {
                    text.push(end);
                } else {
                    depth += 1;
                    new_line(&mut text, depth);
                }
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                new_line(&mut text, depth);
                text.push(character);
            }
            ',' => {
                text.push(',');
                new_line(&mut text, depth);
            }
            ':' => text.push_str(": "),
            other if other.is_ascii_whitespace() => {}
            other => text.push(other),
        }
    }
    (text, true)
}

/// Returns about the first `max_bytes` of a text, and whether that is all of it.
pub(super) fn cut(text: &str, max_bytes: usize) -> (String, bool) {
    let end = text.floor_char_boundary(max_bytes);
    (text[..end].to_owned(), end == text.len())
}

fn new_line(text: &mut String, depth: usize) {
    text.push('\n');
    (0..depth).for_each(|_| text.push_str(INDENT));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn json_is_indented_and_keeps_every_digit() {
        let (text, is_whole) = pretty(r#"{"n":9007199254740993,"f":1.10,"e":[ ],"o":{"a":"x,{\"y"}}"#, 1_000);
        let expected =
            "{\n  \"n\": 9007199254740993,\n  \"f\": 1.10,\n  \"e\": [],\n  \"o\": {\n    \"a\": \"x,{\\\"y\"\n  }\n}";
        assert_eq!((text.as_str(), is_whole), (expected, true));
    }

    #[test]
    fn a_large_text_is_cut() {
        let (text, is_whole) = pretty(&format!("[{}1]", "1,".repeat(10_000)), 1_000);
        assert!(!is_whole && text.len() < 1_100);
    }

    #[test]
    fn a_text_is_cut_between_two_characters() {
        assert_eq!(cut("aé", 10), ("aé".to_owned(), true));
        assert_eq!(cut("aé", 2), ("a".to_owned(), false));
    }

    proptest! {
        #[test]
        fn without_its_spaces_nothing_has_changed(value in "[\\[\\]{}:,a-z0-9 ]{0,80}") {
            let json = serde_json::json!({"a": value, "b": [1, {"c": value}]}).to_string();
            let (text, _) = pretty(&json, 10_000);
            prop_assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(),
                            serde_json::from_str::<serde_json::Value>(&json).unwrap());
        }
    }
}
