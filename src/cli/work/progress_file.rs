//! The file in which a program writes its progress.

use std::fs::{self, OpenOptions};
use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::value::RawValue;

use crate::client::Job;
use crate::domain::json::is_too_deep;
use crate::domain::limits;

/// How often the file is looked at.
const INTERVAL: Duration = Duration::from_secs(1);

/// A file that is removed when the program has ended.
pub(super) struct ProgressFile(PathBuf);

impl ProgressFile {
    /// Creates an empty file that nobody else may read.
    pub(super) fn create() -> std::io::Result<Self> {
        let name = format!("waybill-progress-{:016x}", getrandom::u64().unwrap_or_default());
        let path = std::env::temp_dir().join(name);
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        Ok(ProgressFile(path))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// Reports what the program writes, for as long as it is polled.
    pub(super) async fn watch(&self, job: &Job) -> std::convert::Infallible {
        let mut reported: Option<Box<RawValue>> = None;
        loop {
            tokio::time::sleep(INTERVAL).await;
            let written = self.read();
            if let Some(progress) = written.filter(|text| reported.as_ref().is_none_or(|old| old.get() != text.get())) {
                job.report_progress(progress.clone());
                reported = Some(progress);
            }
        }
    }

    /// Returns what is written in the file if it is JSON: it may be half written.
    fn read(&self) -> Option<Box<RawValue>> {
        let mut text = String::new();
        let file = fs::File::open(&self.0).ok()?;
        file.take(limits::PROGRESS_BYTES as u64).read_to_string(&mut text).ok()?;
        RawValue::from_string(text.trim().to_owned()).ok().filter(|json| !is_too_deep(json.get()))
    }
}

impl Drop for ProgressFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}
