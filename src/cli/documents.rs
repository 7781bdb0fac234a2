//! `waybill completions` and `waybill man`, made from the definition of the commands.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use clap::CommandFactory;
use clap_mangen::Man;

use super::error::CliError;
use crate::config::{Cli, CompletionsArgs, ManArgs};

/// Prints the completion script of a shell.
pub(crate) fn completions(args: &CompletionsArgs) -> Result<(), CliError> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "waybill", &mut script);
    print(&script)
}

/// Prints the manual page of `waybill`, or writes the pages of all commands to a folder.
pub(crate) fn man(args: &ManArgs) -> Result<(), CliError> {
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    match &args.dir {
        None => print(&page(&command)?),
        Some(dir) => {
            fs::create_dir_all(dir).map_err(|error| CliError::Failed(format!("{}: {error}", dir.display())))?;
            write_pages(&command, dir)
        }
    }
}

fn page(command: &clap::Command) -> Result<Vec<u8>, CliError> {
    let mut page = Vec::new();
    Man::new(command.clone()).render(&mut page)?;
    Ok(page)
}

/// Writes `waybill-events-list.1` and so on.
fn write_pages(command: &clap::Command, dir: &Path) -> Result<(), CliError> {
    let man = Man::new(command.clone());
    let path = dir.join(man.get_filename());
    fs::write(&path, page(command)?).map_err(|error| CliError::Failed(format!("{}: {error}", path.display())))?;
    command.get_subcommands().filter(|inner| !inner.is_hide_set()).try_for_each(|inner| write_pages(inner, dir))
}

fn print(bytes: &[u8]) -> Result<(), CliError> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(bytes)?;
    stdout.flush()?;
    Ok(())
}
