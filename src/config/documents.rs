//! Settings of `waybill completions` and `waybill man`.

use std::path::PathBuf;

use clap::Args;
use clap_complete::Shell;

#[derive(Debug, Clone, Args)]
pub struct CompletionsArgs {
    /// Shell to print the script for.
    pub shell: Shell,
}

#[derive(Debug, Clone, Args)]
pub struct ManArgs {
    /// Folder to write the pages of all commands to [default: print the first page].
    #[arg(long, value_name = "FOLDER")]
    pub dir: Option<PathBuf>,
}
