//! Settings of traces.

use std::path::{Path, PathBuf};

use clap::Args;

use crate::traces::TraceSettings;

/// The maximum number of bytes of the file of headers.
const MAX_HEADERS_BYTES: u64 = 16 * 1024;

#[derive(Debug, Clone, Args)]
pub struct TraceArgs {
    /// URL of an OpenTelemetry collector that takes traces by OTLP over HTTP, such as `http://localhost:4318`. Needs a
    /// program that was built with the feature `otlp` [default: none, nothing is traced].
    #[arg(long, env = "WAYBILL_OTLP_ENDPOINT")]
    pub otlp_endpoint: Option<String>,

    /// File of headers for the collector, such as `authorization: Bearer …`, one per line [default: none].
    #[arg(long, env = "WAYBILL_OTLP_HEADERS_FILE")]
    pub otlp_headers_file: Option<PathBuf>,

    /// Part of the traces that begin at this server that is recorded, 0 to 1. Traces of callers are recorded if their
    /// `traceparent` says so.
    #[arg(long, env = "WAYBILL_TRACE_RATIO", default_value_t = 1.0, value_parser = parse_ratio)]
    pub trace_ratio: f64,
}

impl TraceArgs {
    /// Returns where traces go, or `None` if nothing is traced. The error contains no value of a header.
    pub(crate) fn settings(&self) -> Result<Option<TraceSettings>, String> {
        // An empty value counts as unset: container tools often pass on undefined variables as empty.
        let Some(endpoint) = self.otlp_endpoint.clone().filter(|endpoint| !endpoint.is_empty()) else {
            return Ok(None);
        };
        let file = self.otlp_headers_file.as_ref().filter(|file| !file.as_os_str().is_empty());
        let read = |file: &PathBuf| read_headers(file).map_err(|why| format!("{}: {why}", file.display()));
        let headers = file.map(read).transpose()?.unwrap_or_default();
        Ok(Some(TraceSettings { endpoint, headers, ratio: self.trace_ratio }))
    }
}

fn parse_ratio(text: &str) -> Result<f64, String> {
    let ratio = text.parse().ok().filter(|ratio| (0.0..=1.0).contains(ratio));
    ratio.ok_or_else(|| "must be a number from 0 to 1".to_owned())
}

fn read_headers(file: &Path) -> Result<Vec<(String, String)>, String> {
    let size = std::fs::metadata(file).map_err(|error| error.to_string())?.len();
    if size > MAX_HEADERS_BYTES {
        return Err(format!("it has more than {MAX_HEADERS_BYTES} bytes"));
    }
    let text = std::fs::read_to_string(file).map_err(|error| error.to_string())?;
    let lines = text.lines().map(str::trim).enumerate().filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    let header = |(index, line): (usize, &str)| match line.split_once(':') {
        Some((name, value)) if !name.trim().is_empty() => Ok((name.trim().to_owned(), value.trim().to_owned())),
        _ => Err(format!("line {} must be a name, a colon and a value", index + 1)),
    };
    lines.map(header).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers_in(text: &str) -> Result<Vec<(String, String)>, String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        read_headers(file.path())
    }

    #[test]
    fn headers_are_read_line_by_line() {
        let headers = headers_in("# the collector\n\n Authorization : Bearer a:b \nx-tenant: 7\n").unwrap();
        let expected = [("Authorization", "Bearer a:b"), ("x-tenant", "7")];
        assert_eq!(headers, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
        assert_eq!(headers_in("a: b\nsecret\n").unwrap_err(), "line 2 must be a name, a colon and a value");
        assert!(headers_in(&"a: b\n".repeat(10_000)).is_err());
    }

    #[test]
    fn a_ratio_is_between_0_and_1() {
        assert_eq!((parse_ratio("0"), parse_ratio("1"), parse_ratio("0.01")), (Ok(0.0), Ok(1.0), Ok(0.01)));
        for text in ["", "-0.1", "1.1", "NaN", "a"] {
            assert!(parse_ratio(text).is_err(), "{text}");
        }
    }
}
