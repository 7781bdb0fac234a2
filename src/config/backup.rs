//! Settings of `waybill backup` and `waybill restore`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{DatabaseArgs, LogArgs};

#[derive(Debug, Clone, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct BackupArgs {
    #[command(subcommand)]
    pub verb: Option<BackupVerb>,

    /// File to write, which must not exist, or a folder, in which the backup is named by the time.
    #[arg(value_name = "FILE OR FOLDER", required = true)]
    pub target: Option<PathBuf>,

    /// Print the summary as JSON.
    #[arg(long)]
    pub json: bool,

    #[command(flatten)]
    pub database: DatabaseArgs,

    #[command(flatten)]
    pub logging: LogArgs,
}

#[derive(Debug, Clone, Subcommand)]
pub enum BackupVerb {
    /// Read a backup to its end and compare it with its checksums. Needs no database.
    Verify(VerifyArgs),
}

#[derive(Debug, Clone, Args)]
pub struct VerifyArgs {
    pub file: PathBuf,

    /// Print the summary as JSON.
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Clone, Args)]
pub struct RestoreArgs {
    /// File that `waybill backup` has written.
    pub file: PathBuf,

    /// Drop what the database contains of Waybill. If the restore fails, it is still there.
    #[arg(long)]
    pub replace: bool,

    /// Print the summary as JSON.
    #[arg(long)]
    pub json: bool,

    #[command(flatten)]
    pub database: DatabaseArgs,

    #[command(flatten)]
    pub logging: LogArgs,
}
