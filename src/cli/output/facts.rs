//! One thing, as a block of names and values.

use super::style::{Paint, state_style};
use super::text::{clean, width_of};

#[derive(Debug, Clone, Default)]
pub(crate) struct Facts(Vec<(&'static str, String, bool)>);

impl Facts {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Adds a fact. One without a value is left out.
    pub(crate) fn add(mut self, name: &'static str, value: impl AsRef<str>) -> Self {
        let value = clean(value.as_ref());
        if !value.is_empty() {
            self.0.push((name, value, false));
        }
        self
    }

    /// Adds a state, in its colour.
    pub(crate) fn state(mut self, name: &'static str, value: impl AsRef<str>) -> Self {
        self.0.push((name, clean(value.as_ref()), true));
        self
    }

    pub(super) fn render(&self, paint: Paint) -> String {
        let width = self.0.iter().map(|(name, ..)| width_of(name)).max().unwrap_or(0) + 1;
        let line = |(name, value, is_state): &(&str, String, bool)| {
            let name = paint.dim(&format!("{:<width$}", format!("{name}:")));
            let value = if *is_state { paint.paint(state_style(value), value) } else { value.clone() };
            format!("{name}  {value}\n")
        };
        self.0.iter().map(line).collect()
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
}
