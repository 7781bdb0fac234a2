//! Backups: one file with all of the schema `waybill`, and a manifest that says what must be in it.
//!
//! - `file`: the format, and how a file is written so that it is complete or absent under its name.
//! - `dump`: runs `pg_dump` into a file.
//! - `load`: feeds a file to `pg_restore`, and what that prints to `psql`, in one transaction.
//! - `child`: the messages of these programs.
//!
//! The archive is that of `pg_dump`'s custom format: a snapshot, the same for all tables, that needs no copy of the
//! data directory, can be taken from any database and be restored into any newer version of PostgreSQL. The reasons are
//! in `docs/decisions/0042-backups-are-dumps.md`. All functions block; the SQL is in [`crate::store::backup`].

mod child;
pub(crate) mod dump;
pub(crate) mod file;
pub(crate) mod load;

use std::io;
use std::path::{Path, PathBuf};

/// The reason why a backup could not be written, read or restored.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BackupError {
    #[error("{} exists. Choose another name, or a folder: in a folder, each backup gets a name of its own", .0.display())]
    Exists(PathBuf),
    #[error("another backup is being written to {}", .0.display())]
    InProgress(PathBuf),
    #[error("{} is not a backup made by `waybill backup`", .0.display())]
    Foreign(PathBuf),
    #[error("{} was written in another format ({format}): use the version of Waybill that wrote it, or a newer one", file.display())]
    OtherFormat { file: PathBuf, format: String },
    #[error("{} is truncated: it has {has} of {expected} bytes", file.display())]
    Truncated { file: PathBuf, has: u64, expected: u64 },
    #[error("{} is damaged: {reason}", file.display())]
    Damaged { file: PathBuf, reason: &'static str },
    #[error("{program} failed ({status}): {lines}")]
    Program { program: &'static str, status: String, lines: String },
    #[error("cannot {action} {}: {source}", path.display())]
    Io { action: &'static str, path: PathBuf, source: io::Error },
}

impl BackupError {
    /// Returns a closure for `map_err` that adds the action and the file.
    fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { action, path: path.to_path_buf(), source }
    }
}
