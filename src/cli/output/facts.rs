//! One thing, as a block of names and values.

use serde_json::Value;

use super::style::{Paint, state_style};
use super::text::{clean, plural, width_of, word};

/// The most lines of a text that are shown. An error may quote a whole stack or page; `--json` has all of it.
const MAX_LINES: usize = 20;

#[derive(Debug, Clone, Default)]
pub(crate) struct Facts(Vec<Fact>);

#[derive(Debug, Clone)]
struct Fact {
    name: &'static str,
    /// What stands beside the name, and below that.
    lines: Vec<String>,
    is_state: bool,
}

impl Facts {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Adds a fact on one line. One without a value is left out.
    pub(crate) fn add(mut self, name: &'static str, value: impl AsRef<str>) -> Self {
        let value = clean(value.as_ref());
        if !value.is_empty() {
            self.0.push(Fact { name, lines: vec![value], is_state: false });
        }
        self
    }

    /// Adds a text, line by line. Of one with more than [`MAX_LINES`], the beginning and the end are shown: either may say
    /// why. One without a value is left out.
    pub(crate) fn add_lines(mut self, name: &'static str, value: &Value) -> Self {
        let Some(text) = value.as_str() else { return self.add(name, word(value)) };
        let all: Vec<&str> = text.trim_end().lines().collect();
        let left_out = all.len().saturating_sub(MAX_LINES);
        let (head, tail) = all.split_at(if left_out > 0 { MAX_LINES / 2 } else { all.len() });
        let shown = |line: &&str| clean(line).trim_end().to_owned();
        let mut lines: Vec<String> = head.iter().map(shown).collect();
        if left_out > 0 {
            lines.push(format!("… {} …", plural(left_out as u64, "further line")));
        }
        lines.extend(tail.iter().skip(left_out).map(shown));
        if !lines.is_empty() {
            self.0.push(Fact { name, lines, is_state: false });
        }
        self
    }

    /// Adds a state, in its colour.
    pub(crate) fn state(mut self, name: &'static str, value: impl AsRef<str>) -> Self {
        self.0.push(Fact { name, lines: vec![clean(value.as_ref())], is_state: true });
        self
    }

    pub(super) fn render(&self, paint: Paint) -> String {
        let width = self.0.iter().map(|fact| width_of(fact.name)).max().unwrap_or(0) + 1;
        self.0.iter().map(|fact| fact.render(paint, width)).collect()
    }
}

impl Fact {
    /// Returns the lines of the fact, with `width` columns for its name.
    fn render(&self, paint: Paint, width: usize) -> String {
        let mut text = String::new();
        for (number, line) in self.lines.iter().enumerate() {
            let name = if number == 0 { format!("{}:", self.name) } else { String::new() };
            let name = paint.dim(&format!("{name:<width$}"));
            let value = if self.is_state { paint.paint(state_style(line), line) } else { line.clone() };
            text.push_str(format!("{name}  {value}").trim_end());
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_aligned_and_empty_ones_left_out() {
        let facts = Facts::new().add("id", "7").add("type", "").state("status", "FAILED").add("error", "a\nb\u{7}");
        assert_eq!(facts.render(Paint(false)), "id:      7\nstatus:  FAILED\nerror:   a b\u{fffd}\n");
    }

    #[test]
    fn a_text_keeps_its_lines_up_to_a_limit() {
        let text = Value::from("boom\n\n\tat a.rs:1\u{7}\r\n");
        let facts = Facts::new().add("id", "7").add_lines("error", &text).add_lines("none", &Value::Null);
        assert_eq!(facts.render(Paint(false)), "id:     7\nerror:  boom\n\n         at a.rs:1\u{fffd}\n");
        let all: Vec<String> = (1..=MAX_LINES + 2).map(|number| number.to_string()).collect();
        let shown = Facts::new().add_lines("error", &Value::from(all.join("\n"))).render(Paint(false));
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(lines.len(), MAX_LINES + 1);
        assert_eq!(lines[9..12], ["        10", "        … 2 further lines …", "        13"]);
        assert_eq!(lines[MAX_LINES], "        22");
        let fitting = Facts::new().add_lines("error", &Value::from(all[..MAX_LINES].join("\n"))).render(Paint(false));
        assert!(!fitting.contains('…') && fitting.lines().count() == MAX_LINES, "{fitting}");
    }
}
