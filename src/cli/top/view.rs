//! What `waybill top` shows, as lines that fit a screen of any size.

use anstyle::{AnsiColor, Style};
use serde_json::Value;

use super::look::Look;
use crate::cli::error::CliError;
use crate::cli::output::sparkline::sparkline;
use crate::cli::output::{Column, Output, Table, clean, count, cut, first_line, time, width_of, word};
use crate::cli::{stats, workers};

/// The least lines of a section: its head and a row.
const LEAST_ROWS: usize = 2;

/// The state of the screen.
pub(super) struct View {
    pub url: String,
    pub output: Output,
    pub look: Look,
    /// Why the server did not answer the last time, if it did not.
    pub away: Option<String>,
}

impl View {
    /// Takes a look, or notes that the server is away. Returns an error if it refuses for good.
    pub(super) fn take(&mut self, looked: Result<Look, CliError>) -> Result<(), CliError> {
        match looked {
            Ok(look) => (self.look, self.away) = (look, None),
            Err(CliError::Request(error)) if !error.is_final() => self.away = Some(clean(&error.to_string())),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Returns the lines of the screen.
    pub(super) fn lines(&self, width: usize, height: usize) -> Vec<String> {
        let mut lines = vec![self.head(width), self.banner(width)];
        lines.extend(self.figures(width));
        lines.extend(self.rates(width));
        let sections = [("TAGS", self.tags()), ("WORKERS", self.workers()), ("FAILED EVENTS", self.failing())];
        let sections: Vec<_> = sections.into_iter().filter(|(_, table)| !table.is_empty()).collect();
        for (number, (name, table)) in sections.iter().enumerate() {
            let rest = height.saturating_sub(lines.len()) / (sections.len() - number);
            lines.extend(self.section(name, table, width, rest));
        }
        lines.truncate(height);
        lines
    }

    fn head(&self, width: usize) -> String {
        let right = format!("{}  q quits", self.output.now.format("%H:%M:%S UTC"));
        let left = cut(&format!("waybill top  {}", self.url), width.saturating_sub(right.len() + 2));
        let space = width.saturating_sub(width_of(&left) + right.len());
        self.output.paint.bold(&format!("{left}{}{right}", " ".repeat(space)))
    }

    /// Returns the line that says if the server is away.
    fn banner(&self, width: usize) -> String {
        let Some(away) = &self.away else { return String::new() };
        let age = time::duration(self.output.now - self.look.at);
        let text = cut(&format!("the server is away; this is {age} old: {away}"), width);
        self.output.paint.paint(Style::new().fg_color(Some(AnsiColor::Red.into())).bold(), &text)
    }

    /// Returns the figures, on as many lines as they need.
    fn figures(&self, width: usize) -> Vec<String> {
        let stats = &self.look.stats;
        let figure = |name: &str, label: &str| {
            let number = count(&stats[name], &stats[format!("{name}_is_exact")]);
            format!("{label} {number}")
        };
        let workers = match stats["stale_workers"].as_u64() {
            Some(stale @ 1..) => format!("workers {} ({stale} stale)", word(&stats["workers"])),
            _ => format!("workers {}", word(&stats["workers"])),
        };
        let figures = [
            figure("waiting", "waiting"),
            figure("running", "running"),
            figure("delayed", "delayed"),
            figure("failed", "failed"),
            workers,
            figure("dead_letters", "dead letters"),
            figure("pushes_pending", "pushes"),
        ];
        let mut lines: Vec<String> = Vec::new();
        for figure in figures {
            match lines.last_mut() {
                Some(line) if width_of(line) + 2 + width_of(&figure) <= width => {
                    line.push_str("  ");
                    line.push_str(&figure);
                }
                _ => lines.push(cut(&figure, width)),
            }
        }
        lines
    }

    /// Returns a line of bars for the last hour of each rate.
    fn rates(&self, width: usize) -> Vec<String> {
        let rate = |name: &str| {
            let per_minute = self.look.stats["per_minute"][name].as_f64().unwrap_or(0.0);
            let label = format!("{name:<10} {per_minute:>9.1}/min  ");
            let values = self.look.history["series"][name].as_array();
            let values: Vec<f64> = values.into_iter().flatten().map(|value| value.as_f64().unwrap_or(0.0)).collect();
            format!("{label}{}", sparkline(&values, width.saturating_sub(label.len()).min(60)))
        };
        ["published", "completed", "failed"].map(rate).to_vec()
    }

    /// Returns a blank line, the name of a section and as many rows as fit.
    fn section(&self, name: &str, table: &Table, width: usize, height: usize) -> Vec<String> {
        if height < LEAST_ROWS + 2 {
            return Vec::new();
        }
        let title = self.output.paint.dim(name);
        let rows = table.render(self.output.paint, Some(width));
        let lines = [String::new(), title].into_iter().chain(rows.lines().map(str::to_owned));
        lines.take(height).collect()
    }

    /// Returns the tags with the most waiting events first: not all of them may fit.
    fn tags(&self) -> Table {
        let mut stats = self.look.stats.clone();
        if let Some(tags) = stats["tags"].as_array_mut() {
            tags.sort_by_key(|tag| std::cmp::Reverse(tag["waiting"].as_u64()));
        }
        stats::tag_table(&stats)
    }

    /// Returns the workers, those that have gone last: not all of them may fit.
    fn workers(&self) -> Table {
        let mut table = Table::new(workers::columns());
        let mut all: Vec<&Value> = self.look.workers["workers"].as_array().into_iter().flatten().collect();
        all.sort_by_key(|worker| worker["silent"].as_bool() == Some(true) && worker["stale"].as_bool() != Some(true));
        for worker in all {
            table.row(workers::row(&self.output, worker));
        }
        table
    }

    fn failing(&self) -> Table {
        let columns = vec![
            Column::number("ID"),
            Column::flexible("TITLE", 12),
            Column::new("FAILED"),
            Column::flexible("ERROR", 12),
        ];
        let mut table = Table::new(columns);
        for event in self.look.failing["events"].as_array().into_iter().flatten() {
            table.row(self.failing_row(event));
        }
        table
    }

    fn failing_row(&self, event: &Value) -> Vec<crate::cli::output::Cell> {
        vec![
            word(&event["id"]).into(),
            word(&event["title"]).into(),
            self.output.ago(&event["updated_at"]).into(),
            first_line(&event["last_error"]).into(),
        ]
    }
}

#[cfg(test)]
mod tests {
    use chrono::{DateTime, TimeDelta, Utc};
    use serde_json::json;

    use super::*;
    use crate::cli::output::Paint;
    use crate::client::ClientError;

    fn view() -> View {
        let now: DateTime<Utc> = "2026-03-09T12:00:00Z".parse().unwrap();
        let tag = json!({"tag": "images", "waiting": 5, "workers": 0, "unserved": true, "oldest_age_seconds": 90.0,
            "per_minute": {"published": 2.0, "completed": 0.0}});
        let failed = |id: u32| json!({"id": id, "title": "a\u{1b}[2Jb", "updated_at": "2026-03-09T11:00:00Z"});
        let worker = |id: &str, silent: bool| {
            json!({"worker_id": id, "silent": silent, "stale": false, "holding": 0,
            "tags": ["images"], "event_ids": [], "last_seen_at": "2026-03-09T11:58:00Z"})
        };
        let look = Look {
            at: now - TimeDelta::seconds(4),
            stats: json!({"waiting": 5, "running": 1, "workers": 2, "per_minute": {"published": 2.0}, "tags": [tag]}),
            history: json!({"series": {"published": [0, 1, 2]}}),
            workers: json!({"workers": [worker("gone:1", true), worker("here:2", false)]}),
            failing: json!({"events": (1..=40).map(failed).collect::<Vec<_>>()}),
        };
        let output = Output { json: false, paint: Paint(false), width: None, now };
        View { url: "http://x".into(), output, look, away: None }
    }

    #[test]
    fn the_lines_fit_a_screen_of_any_size() {
        for (width, height) in [(80, 24), (40, 10), (200, 100), (1, 1), (0, 0)] {
            let lines = view().lines(width, height);
            assert!(lines.len() <= height, "{height}: {lines:?}");
            assert!(!lines.iter().any(|line| line.contains('\u{1b}')));
            if width == 80 {
                assert!(lines.iter().all(|line| width_of(line) <= width), "{lines:#?}");
                assert!(lines.iter().any(|line| line.starts_with("images")), "{lines:#?}");
                assert!(lines.iter().any(|line| line.starts_with("published        2.0/min  ▁▅█")), "{lines:#?}");
            }
        }
    }

    #[test]
    fn a_screen_of_80_columns_has_all_figures() {
        let mut view = view();
        view.look.stats["waiting"] = json!(1_234_567);
        view.look.stats["stale_workers"] = json!(1);
        for name in ["delayed", "failed", "dead_letters", "pushes_pending"] {
            view.look.stats[name] = json!(12_345);
        }
        let lines = view.lines(80, 24);
        let lines: Vec<&str> = lines.iter().map(|line| line.trim_end()).collect();
        assert_eq!(
            lines[2..17].join("\n"),
            "\
waiting 1234567  running 1  delayed 12345  failed 12345  workers 2 (1 stale)
dead letters 12345  pushes 12345
published        2.0/min  ▁▅█
completed        0.0/min
failed           0.0/min

TAGS
TAG     WAITING  OLDEST  WORKERS  IN/MIN  DONE/MIN  STATE
images        5      1m        0     2.0       0.0  unserved

WORKERS
WORKER  TAGS    HOLDING  EVENTS  LAST SEEN  STATE
here:2  images        0          2m ago     ok
gone:1  images        0          2m ago     silent
"
        );
        let narrow = view.lines(60, 24);
        assert!(narrow.iter().all(|line| width_of(line) <= 60), "{narrow:#?}");
    }

    #[test]
    fn a_server_that_is_away_is_said_to_be_and_one_that_refuses_ends_it() {
        let mut view = view();
        let away = ClientError::Unreachable { url: "http://x".into(), cause: "refused".into(), was_sent: false };
        view.take(Err(away.into())).unwrap();
        assert_eq!(view.lines(80, 24)[1], "the server is away; this is 4s old: http://x does not answer: refused");
        let refused = crate::client::Problem { status: 401, ..Default::default() };
        assert!(view.take(Err(ClientError::Refused(Box::new(refused)).into())).is_err());
    }
}
