//! What the system says about this process, under the names that all programs use. Only Linux tells; elsewhere the
//! start time is the only figure.

use std::fs;
use std::sync::{Mutex, PoisonError};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::gauge::ConstGauge;

/// The figures of this process.
#[derive(Debug)]
pub struct Process {
    started_at: f64,
    usage: Mutex<ProcessUsage>,
}

/// What the process uses of the machine. `None` means that it is not known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ProcessUsage {
    resident_bytes: Option<i64>,
    open_files: Option<i64>,
    max_files: Option<i64>,
}

impl ProcessUsage {
    /// Reads the figures. It lists all open files, so with thousands of connections it takes some milliseconds.
    pub fn read() -> Self {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
        ProcessUsage {
            resident_bytes: number_after(&status, "VmRSS:").map(|kilobytes| kilobytes * 1024),
            open_files: fs::read_dir("/proc/self/fd").ok().map(|files| files.count() as i64),
            max_files: number_after(&limits, "Max open files"),
        }
    }
}

/// Returns the first number of the line that begins with `name`.
fn number_after(text: &str, name: &str) -> Option<i64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    rest.split_whitespace().next()?.parse().ok()
}

impl Process {
    pub(super) fn new() -> Self {
        let since_epoch = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let started_at = since_epoch.map_or(0.0, |since| since.as_secs_f64());
        Process { started_at, usage: Mutex::default() }
    }

    pub fn set_usage(&self, usage: ProcessUsage) {
        *self.usage.lock().unwrap_or_else(PoisonError::into_inner) = usage;
    }
}

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let mut gauge = |name, help, value: Option<f64>| match value.map(ConstGauge::new) {
            Some(gauge) => gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?),
            None => Ok(()),
        };
        let usage = *self.usage.lock().unwrap_or_else(PoisonError::into_inner);
        let float = |number: Option<i64>| number.map(|number| number as f64);
        gauge("process_start_time_seconds", "Time at which the server started, since 1970", Some(self.started_at))?;
        gauge("process_resident_memory_bytes", "Memory of the server that is in RAM", float(usage.resident_bytes))?;
        gauge("process_open_fds", "Open files and connections", float(usage.open_files))?;
        gauge("process_max_fds", "Files and connections that may be open", float(usage.max_files))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_after_a_name_is_read_and_anything_else_is_unknown() {
        let text = "VmPeak:\t 9 kB\nVmRSS:\t   1234 kB\nMax open files            1024    4096   files\n";
        assert_eq!(number_after(text, "VmRSS:"), Some(1234));
        assert_eq!(number_after(text, "Max open files"), Some(1024));
        assert_eq!(number_after("Max open files   unlimited", "Max open files"), None);
        assert_eq!(number_after(text, "Threads:"), None);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn linux_tells_all_of_them() {
        let usage = ProcessUsage::read();
        assert!(usage.resident_bytes.is_some_and(|bytes| bytes > 1_000_000), "{usage:?}");
        assert!(usage.open_files.is_some_and(|files| files > 0) && usage.max_files > usage.open_files, "{usage:?}");
    }
}
