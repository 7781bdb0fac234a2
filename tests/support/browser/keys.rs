//! Names of keys.

use serde_json::{Value, json};

/// Returns the actions of a keyboard that presses keys together, such as `Shift+Tab`, and releases them.
pub(super) fn pressed(keys: &str) -> Value {
    let codes: Vec<String> = keys.split('+').map(|name| code_of(name).to_string()).collect();
    let down = codes.iter().map(|code| json!({"type": "keyDown", "value": code}));
    let up = codes.iter().rev().map(|code| json!({"type": "keyUp", "value": code}));
    let actions: Vec<Value> = down.chain(up).collect();
    json!({"actions": [{"type": "key", "id": "keyboard", "actions": actions}]})
}

/// Returns the character that stands for a key in WebDriver: its own, or one of a private range.
fn code_of(name: &str) -> char {
    match name {
        "Alt" => '\u{e00a}',
        "ArrowDown" => '\u{e015}',
        "ArrowLeft" => '\u{e012}',
        "ArrowRight" => '\u{e014}',
        "ArrowUp" => '\u{e013}',
        "Backspace" => '\u{e003}',
        "Control" => '\u{e009}',
        "End" => '\u{e010}',
        "Enter" => '\u{e007}',
        "Escape" => '\u{e00c}',
        "Home" => '\u{e011}',
        "Shift" => '\u{e008}',
        "Space" => ' ',
        "Tab" => '\u{e004}',
        _ => {
            let mut characters = name.chars();
            let first = characters.next().unwrap_or_else(|| panic!("no key"));
            assert!(characters.next().is_none(), "no key is called {name}");
            first
        }
    }
}
