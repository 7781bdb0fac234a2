//! Loads a backup into a database, in one transaction.
//!
//! `pg_restore` turns the archive into a script, and `psql` runs it, between statements of our own. All of it is one
//! transaction, which ends with `COMMIT` only after the whole file was read, its checksum compared, and `pg_restore` has
//! succeeded. Whatever dies in between, the connection ends without a commit, and nothing has changed.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;

use super::child::{collect, finish};
use super::file::{BackupFile, PIECE_BYTES};
use super::{BackupError, child};
use crate::postgres::Tools;

/// Where to load a backup, and the statements around it.
pub(crate) struct Target<'a> {
    pub tools: &'a Tools,
    pub connection: &'a [(&'static str, OsString)],
    pub before: &'a str,
    pub after: &'a str,
}

/// Loads a backup. `on_progress` gets the number of bytes of the archive that were passed on.
pub(crate) fn load(target: &Target, backup: &mut BackupFile, on_progress: &dyn Fn(u64)) -> Result<(), BackupError> {
    let mut psql = target.tools.command("psql", target.connection);
    psql.args(["--no-psqlrc", "--quiet", "--no-password", "--set", "ON_ERROR_STOP=1", "--file", "-"])
        // The message alone: a statement may contain data.
        .args(["--set", "VERBOSITY=terse", "--set", "SHOW_CONTEXT=never"]);
    let mut psql = spawn("psql", psql.stdout(Stdio::null()))?;
    let mut pg_restore = target.tools.command("pg_restore", &[]);
    pg_restore.args(["--no-owner", "--no-privileges", "--exit-on-error", "--file", "-"]);
    let mut pg_restore = spawn("pg_restore", pg_restore.stdout(Stdio::piped()))?;
    let (psql_lines, restore_lines) = (collect(psql.stderr.take()), collect(pg_restore.stderr.take()));
    let (script, mut archive) = (psql.stdin.take(), pg_restore.stdin.take());
    let output = pg_restore.stdout.take();
    let (read, script) = thread::scope(|scope| {
        let passing_on = scope.spawn(move || pass_on(target.before, output, script));
        let mut write = |bytes: &[u8]| archive.as_mut().map_or(Ok(()), |archive| archive.write_all(bytes));
        let read = backup.read_archive(&mut write, on_progress);
        drop(archive);
        (read, passing_on.join().unwrap_or_else(|_| Err(io::Error::other("a thread panicked"))))
    });
    let restored = finish("pg_restore", &mut pg_restore, restore_lines);
    let complete = match script {
        // Without the end of the script, `psql` commits nothing, and its connection ends.
        Ok(script) => child::finish_after(read, restored).and_then(|()| end(script, target.after)),
        // `psql` has failed, and the others because of it.
        Err(error) => Err(pipe_failed(error)),
    };
    let finished = finish("psql", &mut psql, psql_lines);
    child::finish_after(complete, finished)
}

fn spawn(program: &'static str, command: &mut Command) -> Result<Child, BackupError> {
    command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().map_err(|error| BackupError::Program {
        program,
        status: "it did not run".into(),
        lines: error.to_string(),
    })
}

/// Writes the beginning of the script, and what `pg_restore` prints. Returns the script to be continued.
fn pass_on(before: &str, output: Option<ChildStdout>, script: Option<ChildStdin>) -> io::Result<ChildStdin> {
    let gone = || io::Error::from(io::ErrorKind::BrokenPipe);
    let (mut output, mut script) = (output.ok_or_else(gone)?, script.ok_or_else(gone)?);
    script.write_all(before.as_bytes())?;
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        match output.read(&mut piece)? {
            0 => return Ok(script),
            read => script.write_all(&piece[..read])?,
        }
    }
}

fn end(mut script: ChildStdin, after: &str) -> Result<(), BackupError> {
    script.write_all(after.as_bytes()).map_err(pipe_failed)
}

fn pipe_failed(error: io::Error) -> BackupError {
    BackupError::io("pass on", std::path::Path::new("the script to psql"))(error)
}
