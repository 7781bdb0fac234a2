//! What commands print: tables and facts for people, the server's own JSON for programs.
//!
//! Titles, errors, tags and names come from anybody who may publish. [`clean`] replaces what could control a terminal,
//! and everything that is printed as text passes through it.

mod facts;
pub(crate) mod json;
pub(crate) mod progress;
pub(crate) mod sparkline;
mod style;
mod table;
mod text;
pub(crate) mod time;

use std::io::{self, IsTerminal, Write};

use chrono::{DateTime, Utc};
use serde_json::Value;

use super::client::{Answer, List};
use super::error::CliError;
use crate::config::{ColorChoice, ServerArgs};

pub(crate) use facts::Facts;
pub(crate) use style::{Paint, state_style};
pub(crate) use table::{Cell, Column, Table};
pub(crate) use text::{clean, count, cut, first_line, plural, width_of, word, words, wrapped};

/// Where and how a command prints.
#[derive(Debug, Clone)]
pub(crate) struct Output {
    /// Whether to print JSON.
    pub json: bool,
    pub paint: Paint,
    /// The width of the terminal, or `None` if lines may have any length.
    pub width: Option<usize>,
    /// The time from which relative times are told.
    pub now: DateTime<Utc>,
}

impl Output {
    pub(crate) fn new(args: &ServerArgs) -> Self {
        let is_colored = match args.color {
            ColorChoice::Always => true,
            ColorChoice::Never => false,
            ColorChoice::Auto => io::stdout().is_terminal() && !has_variable("NO_COLOR") && !is_dumb(),
        };
        Output { json: args.json, paint: Paint(is_colored), width: width(), now: Utc::now() }
    }

    /// Prints a line, which must be clean.
    #[expect(clippy::unused_self, reason = "all that is printed goes through an output")]
    pub(crate) fn line(&self, text: &str) -> Result<(), CliError> {
        let mut stdout = io::stdout().lock();
        stdout.write_all(text.as_bytes())?;
        stdout.write_all(b"\n")?;
        stdout.flush()?;
        Ok(())
    }

    pub(crate) fn table(&self, table: &Table) -> Result<(), CliError> {
        let mut stdout = io::stdout().lock();
        stdout.write_all(table.render(self.paint, self.width).as_bytes())?;
        stdout.flush()?;
        Ok(())
    }

    pub(crate) fn facts(&self, facts: &Facts) -> Result<(), CliError> {
        let mut stdout = io::stdout().lock();
        stdout.write_all(facts.render(self.paint).as_bytes())?;
        stdout.flush()?;
        Ok(())
    }

    /// Prints an answer: its JSON, or what `show` prints of its value.
    pub(crate) fn answer(
        &self,
        answer: &Answer,
        show: impl FnOnce(&Value) -> Result<(), CliError>,
    ) -> Result<(), CliError> {
        if self.json { self.line(answer.text()) } else { show(&answer.value) }
    }

    /// Prints a list: its JSON, or a table. The end says if there may be more.
    pub(crate) fn list(
        &self,
        list: &List,
        columns: Vec<Column>,
        row: impl Fn(&Value) -> Vec<Cell>,
    ) -> Result<(), CliError> {
        if self.json {
            return self.line(&list.to_json());
        }
        let mut table = Table::new(columns);
        for item in list.values() {
            table.row(row(item));
        }
        self.table(&table)?;
        self.end_of(list);
        Ok(())
    }

    /// Says on standard error how a list ended.
    #[expect(clippy::unused_self, reason = "all that is printed goes through an output")]
    fn end_of(&self, list: &List) {
        match (&list.searched_to, &list.next) {
            (Some(at), Some(next)) => {
                note(&format!("searched back to {}; go on with --after {}", clean(at), clean(next)));
            }
            (None, Some(next)) => note(&format!("there may be more: --limit, --all or --after {}", clean(next))),
            (_, None) if list.items.is_empty() => note("nothing found"),
            (_, None) => {}
        }
    }

    /// Returns how long ago a time of the server was, or how far it is ahead.
    pub(crate) fn ago(&self, at: &Value) -> String {
        time::relative(self.now, at)
    }
}

/// Says something on standard error that is not the result.
pub(crate) fn note(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// Returns the width of the terminal, or what `COLUMNS` says.
fn width() -> Option<usize> {
    if let Some((terminal_size::Width(width), _)) = terminal_size::terminal_size_of(io::stdout()) {
        return Some(usize::from(width)).filter(|width| *width > 0);
    }
    std::env::var("COLUMNS").ok()?.parse().ok().filter(|width| *width > 0)
}

fn has_variable(name: &str) -> bool {
    std::env::var_os(name).is_some_and(|value| !value.is_empty())
}

fn is_dumb() -> bool {
    std::env::var_os("TERM").is_some_and(|term| term == "dumb")
}
