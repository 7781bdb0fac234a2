//! The two text formats that scrapers read: OpenMetrics, and the older one of Prometheus, which most other tools expect.

/// A text format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TextFormat {
    OpenMetrics,
    /// The format of Prometheus, version 0.0.4.
    Prometheus,
}

impl TextFormat {
    pub(crate) fn content_type(self) -> &'static str {
        match self {
            TextFormat::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            TextFormat::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }

    /// Converts OpenMetrics text to this format.
    pub(crate) fn convert(self, text: String) -> String {
        match self {
            TextFormat::OpenMetrics => text,
            TextFormat::Prometheus => to_prometheus(&text),
        }
    }
}

/// Converts OpenMetrics text. The older format describes a counter under the name of its series, with `_total`, and does
/// not mark the end.
fn to_prometheus(text: &str) -> String {
    let mut converted = String::with_capacity(text.len());
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        if line == "# EOF" {
            continue;
        }
        let described = |line: &str| {
            let is_counter = line.starts_with("# TYPE ") && line.ends_with(" counter");
            is_counter.then(|| line.split(' ').nth(2).unwrap_or_default().to_owned())
        };
        // The line after the help has the type.
        let of_help = lines.peek().filter(|_| line.starts_with("# HELP ")).and_then(|next| described(next));
        match described(line).or(of_help) {
            Some(name) => converted.push_str(&line.replacen(&name, &format!("{name}_total"), 1)),
            None => converted.push_str(line),
        }
        converted.push('\n');
    }
    converted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_described_under_the_names_of_their_series_and_the_end_is_not_marked() {
        let text = "# HELP a_events Events of a_events.\n# TYPE a_events counter\na_events_total{tag=\"x\"} 1\n\
                    # HELP a_depth Depth.\n# TYPE a_depth gauge\na_depth 2\n# EOF\n";
        let expected = "# HELP a_events_total Events of a_events.\n# TYPE a_events_total counter\n\
                        a_events_total{tag=\"x\"} 1\n# HELP a_depth Depth.\n# TYPE a_depth gauge\na_depth 2\n";
        assert_eq!(TextFormat::Prometheus.convert(text.to_owned()), expected);
        assert_eq!(TextFormat::OpenMetrics.convert(text.to_owned()), text);
    }
}
