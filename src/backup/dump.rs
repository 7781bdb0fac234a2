//! Writes a snapshot of the database into a file.

use std::ffi::OsString;
use std::process::Stdio;

use super::child::{collect, finish};
use super::file::Draft;
use super::{BackupError, child};
use crate::postgres::Tools;

/// How long `pg_dump` waits for the locks of tables, in milliseconds. Only migrations and the removal of old weeks of
/// the event log hold locks that it must wait for, and only for moments.
const LOCK_WAIT_MS: u32 = 60_000;

/// The snapshot to write, and the schema.
pub(crate) struct Source<'a> {
    pub tools: &'a Tools,
    pub connection: &'a [(&'static str, OsString)],
    /// The name of the snapshot that another session has exported.
    pub snapshot: &'a str,
    pub schema: &'a str,
}

/// Writes the archive into a draft. Returns its size and its checksum.
pub(crate) fn dump(
    source: &Source,
    draft: &mut Draft,
    on_progress: &dyn Fn(u64),
) -> Result<(u64, String), BackupError> {
    let mut command = source.tools.command("pg_dump", source.connection);
    command
        // Without owners and rights: it may be restored by another role.
        .args(["--format=custom", "--no-owner", "--no-privileges", "--no-password"])
        .args(["--schema", source.schema, "--snapshot", source.snapshot])
        .arg(format!("--lock-wait-timeout={LOCK_WAIT_MS}"))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| failed_to_run(&error))?;
    let lines = collect(child.stderr.take());
    let written = match child.stdout.take() {
        Some(mut archive) => draft.write_archive(&mut archive, on_progress),
        None => Ok((0, String::new())),
    };
    // If writing failed, the pipe is closed and the program ends.
    child::finish_after(written, finish("pg_dump", &mut child, lines))
}

fn failed_to_run(error: &std::io::Error) -> BackupError {
    BackupError::Program { program: "pg_dump", status: "it did not run".into(), lines: error.to_string() }
}
