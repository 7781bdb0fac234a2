//! The client programs for backups: `pg_dump`, `pg_restore` and `psql`.
//!
//! They must be of the same major version as the server that they talk to. `pg_dump` refuses newer servers, and what a
//! newer `pg_restore` prints may contain settings that an older server does not know.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::error::PostgresError;
use super::find::{contains_programs, parse_version, path_folders, pg_config_folder, usual_folders};
use super::launch::{ParentDeath, die_with_parent};

const PROGRAMS: &[&str] = &["pg_dump", "pg_restore", "psql"];

/// A folder with the client programs of one version.
#[derive(Debug, Clone)]
pub struct Tools {
    bin_dir: PathBuf,
}

impl Tools {
    /// Finds the programs of a major version: in `bin_dir` if one is given, otherwise where the server's programs are
    /// searched, too.
    pub fn find(bin_dir: Option<&Path>, major: u32) -> Result<Self, PostgresError> {
        let folders = match bin_dir {
            Some(bin_dir) => {
                vec![std::path::absolute(bin_dir).map_err(PostgresError::io("resolve", Path::new("WAYBILL_PG_BIN")))?]
            }
            None => candidates(),
        };
        let mut rejected = Vec::new();
        for folder in folders {
            match inspect(&folder, major) {
                Ok(()) => return Ok(Self { bin_dir: folder }),
                Err(reason) => rejected.push(format!("{} ({reason})", folder.display())),
            }
        }
        rejected.dedup();
        Err(PostgresError::NoTools { major, searched: rejected.join(", ") })
    }

    /// Returns a command that connects as `connection` says, in variables of libpq. The password is not among the
    /// arguments, which every user of the machine can read. The program is killed when the calling thread ends.
    pub fn command(&self, program: &str, connection: &[(&'static str, OsString)]) -> Command {
        let mut command = plain(&self.bin_dir.join(program));
        command.envs(connection.iter().map(|(name, value)| (name, value)));
        die_with_parent(&mut command, ParentDeath::Kill);
        command
    }
}

/// Returns a command with nothing of Waybill's environment, whose variables could lead it to another database.
fn plain(program: &Path) -> Command {
    let mut command = Command::new(program);
    let inherited = ["PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH"];
    command
        .env_clear()
        .envs(inherited.into_iter().filter_map(|name| std::env::var_os(name).map(|value| (name, value))))
        // Messages are shown to the operator as they are.
        .env("LC_ALL", "C")
        .stdin(Stdio::null());
    command
}

fn candidates() -> Vec<PathBuf> {
    let on_path = path_folders().into_iter().filter(|folder| !is_wrapped(folder));
    let pg_config = pg_config_folder(plain(Path::new("pg_config")));
    let found = on_path.chain(pg_config).chain(usual_folders());
    found.filter(|folder| contains_programs(folder, PROGRAMS)).collect()
}

/// Returns whether a folder has scripts that choose one of several versions, as Debian's `/usr/bin` has.
fn is_wrapped(folder: &Path) -> bool {
    let program = std::fs::canonicalize(folder.join(PROGRAMS[0]));
    program.is_ok_and(|program| program.file_name().is_some_and(|name| name != PROGRAMS[0]))
}

/// Checks that a folder has the programs of this major version, and returns the reason if it has not.
fn inspect(folder: &Path, major: u32) -> Result<(), String> {
    if !contains_programs(folder, PROGRAMS) {
        return Err(format!("it does not contain {}", PROGRAMS.join(", ")));
    }
    for program in PROGRAMS {
        let output = plain(&folder.join(program)).arg("--version").output();
        let output = output.map_err(|error| format!("{program} does not run: {error}"))?;
        let version = parse_version(&String::from_utf8_lossy(&output.stdout))
            .ok_or_else(|| format!("`{program} --version` printed no version ({})", output.status))?;
        if version.major != major {
            return Err(format!("{program} is of PostgreSQL {}", version.text));
        }
    }
    Ok(())
}
