//! Colours, by what a state means. Nothing is coloured unless the output is for a terminal, or colours are asked for.

use anstyle::{AnsiColor, Style};

/// Whether colours are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Paint(pub bool);

impl Paint {
    /// Returns a clean text in a style.
    pub(crate) fn paint(self, style: Style, text: &str) -> String {
        match self.0 && style != Style::new() && !text.is_empty() {
            true => format!("{style}{text}{style:#}"),
            false => text.to_owned(),
        }
    }

    pub(crate) fn bold(self, text: &str) -> String {
        self.paint(Style::new().bold(), text)
    }

    pub(crate) fn dim(self, text: &str) -> String {
        self.paint(Style::new().dimmed(), text)
    }
}

/// Returns the style of a state, an action or a word that says how something is.
pub(crate) fn state_style(state: &str) -> Style {
    let color = match state {
        "COMPLETED" | "SUCCEEDED" | "ok" | "active" | "closed" | "in use" => AnsiColor::Green,
        "PROCESSING" | "RUNNING" | "PICKED" | "STARTED" => AnsiColor::Cyan,
        "PENDING" | "RETRIED" | "RESET" | "RELEASED" | "warning" | "stale" | "half_open" | "unserved" => {
            AnsiColor::Yellow
        }
        "FAILED" | "EXPIRED" | "DEAD" | "DEAD_LETTERED" | "error" | "open" | "disabled" | "revoked" | "problem" => {
            AnsiColor::Red
        }
        "CANCELLED" => AnsiColor::Magenta,
        _ => return Style::new(),
    };
    Style::new().fg_color(Some(color.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_code_is_printed_unless_colours_are_wanted() {
        assert_eq!(Paint(false).paint(state_style("FAILED"), "FAILED"), "FAILED");
        assert_eq!(Paint(true).paint(state_style("FAILED"), "FAILED"), "\u{1b}[31mFAILED\u{1b}[0m");
        assert_eq!(Paint(true).paint(state_style("unknown"), "x"), "x");
    }
}
