//! JSON for people: indented, with every number and string as it was written.

use super::text::is_unsafe;

/// Returns a JSON text with line breaks and indents. Characters that could control a terminal become escapes, which
/// mean the same.
pub(crate) fn pretty(text: &str) -> String {
    let mut printer = Printer::default();
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '"' => {
                printer.out.push('"');
                printer.string(&mut chars);
            }
            '{' | '[' => {
                let closing = if c == '{' { '}' } else { ']' };
                while chars.next_if(char::is_ascii_whitespace).is_some() {}
                printer.out.push(c);
                match chars.next_if_eq(&closing) {
                    Some(closing) => printer.out.push(closing),
                    None => printer.break_line(1),
                }
            }
            '}' | ']' => {
                printer.break_line(-1);
                printer.out.push(c);
            }
            ',' => {
                printer.out.push(c);
                printer.break_line(0);
            }
            ':' => printer.out.push_str(": "),
            c if c.is_ascii_whitespace() => {}
            c => printer.out.push(c),
        }
    }
    printer.out
}

#[derive(Default)]
struct Printer {
    out: String,
    depth: usize,
}

impl Printer {
    fn break_line(&mut self, change: isize) {
        self.depth = self.depth.saturating_add_signed(change);
        self.out.push('\n');
        self.out.extend(std::iter::repeat_n("  ", self.depth));
    }

    /// Copies a string behind its first quote.
    fn string(&mut self, chars: &mut impl Iterator<Item = char>) {
        let mut is_escaped = false;
        for c in chars {
            match is_unsafe(c) {
                true => self.out.push_str(&format!("\\u{:04x}", c as u32)),
                false => self.out.push(c),
            }
            match c {
                '"' if !is_escaped => return,
                '\\' => is_escaped = !is_escaped,
                _ => is_escaped = false,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_strings_stay_as_they_are() {
        let text = r#"{"b":1.10, "a": [9007199254740993,{},[ ]], "s": "x, \"{y}\" \\"}"#;
        let shown = "{\n  \"b\": 1.10,\n  \"a\": [\n    9007199254740993,\n    {},\n    []\n  ],\n  \"s\": \"x, \\\"{y}\\\" \\\\\"\n}";
        assert_eq!(pretty(text), shown);
    }

    #[test]
    fn what_could_control_a_terminal_is_escaped() {
        assert_eq!(pretty("\"\u{9b}31m\u{7f}\""), "\"\\u009b31m\\u007f\"");
    }
}
