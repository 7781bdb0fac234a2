//! Finds the server binaries.
//!
//! A folder is a candidate if it contains both `postgres` and `initdb`. If the operator names a
//! folder, only that folder is tried, because a silently ignored setting is worse than an error.
//! Otherwise the order is `PATH`, `pg_config --bindir`, and the usual install folders with the newest
//! version first. The first suitable folder wins. An existing cluster requires its own major version.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::errno::Errno;

use super::error::PostgresError;
use super::owner::Owner;

/// The oldest version that the SQL of the store supports.
pub(super) const MINIMUM_MAJOR: u32 = 15;

/// `*` matches a version. Covers Debian, source builds, Homebrew, and the PGDG packages for Red Hat.
const USUAL_FOLDERS: &[&str] = &[
    "/usr/lib/postgresql/*/bin",
    "/usr/local/pgsql/bin",
    "/opt/homebrew/opt/postgresql@*/bin",
    "/usr/local/opt/postgresql@*/bin",
    "/usr/pgsql-*/bin",
];

/// How the reason to skip a folder begins if its programs are of another version than the cluster.
const OTHER_VERSION: &str = "PostgreSQL ";

/// Server binaries that the owner of the cluster can run.
#[derive(Debug, Clone)]
pub(super) struct Installation {
    pub(super) bin_dir: PathBuf,
    /// The full version, such as `15.18`.
    pub(super) version: String,
}

impl Installation {
    pub(super) fn program(&self, name: &str) -> PathBuf {
        self.bin_dir.join(name)
    }
}

/// The criteria of a search. `cluster` is set if a cluster already exists.
pub(super) struct Search<'a> {
    pub(super) owner: &'a Owner,
    pub(super) bin_dir: Option<&'a Path>,
    pub(super) cluster: Option<(&'a Path, u32)>,
}

impl Search<'_> {
    pub(super) fn find(&self) -> Result<Installation, PostgresError> {
        match self.bin_dir {
            Some(bin_dir) => self.find_in(bin_dir),
            None => self.find_anywhere(),
        }
    }

    fn find_in(&self, bin_dir: &Path) -> Result<Installation, PostgresError> {
        self.inspect(bin_dir)?.map_err(|reason| match self.cluster {
            // Programs that run, but of another version: the data can be moved to it.
            Some(_) if reason.starts_with(OTHER_VERSION) => {
                self.not_found(&[format!("{} ({reason})", bin_dir.display())])
            }
            _ => PostgresError::BinDir { bin_dir: bin_dir.to_path_buf(), reason },
        })
    }

    fn find_anywhere(&self) -> Result<Installation, PostgresError> {
        let mut rejected = Vec::new();
        let mut seen = Vec::new();
        for folder in self.candidates() {
            if seen.contains(&folder) {
                continue;
            }
            match self.inspect(&folder)? {
                Ok(installation) => return Ok(installation),
                Err(reason) => rejected.push(format!("{} ({reason})", folder.display())),
            }
            seen.push(folder);
        }
        Err(self.not_found(&rejected))
    }

    /// Returns the candidate folders lazily: `pg_config` and the usual folders are tried only if `PATH`
    /// contains no suitable server.
    fn candidates(&self) -> impl Iterator<Item = PathBuf> {
        std::iter::once_with(path_folders)
            .chain(std::iter::once_with(|| self.pg_config().into_iter().collect()))
            .chain(std::iter::once_with(usual_folders))
            .flatten()
            .map(|folder| resolved(&folder))
            .filter(|folder| contains_server(folder))
    }

    fn pg_config(&self) -> Option<PathBuf> {
        pg_config_folder(self.owner.command("pg_config"))
    }

    /// Checks a folder. The outer error ends the search; the inner error is the reason to skip the folder.
    fn inspect(&self, bin_dir: &Path) -> Result<Result<Installation, String>, PostgresError> {
        if !contains_server(bin_dir) {
            return Ok(Err("it does not contain both `postgres` and `initdb`".into()));
        }
        // Run as the user who will run the server: `postgres` cannot use a folder under /root.
        let result = self.owner.command(bin_dir.join("postgres")).arg("--version").output();
        let output = match result {
            Ok(output) => output,
            Err(error) if self.owner.is_switched() && error.raw_os_error() == Some(Errno::EPERM as i32) => {
                return Err(PostgresError::CannotSwitchUser { user: self.owner.name().to_owned(), source: error });
            }
            Err(error) => {
                return Ok(Err(format!("user `{}` cannot run it: {error}", self.owner.name())));
            }
        };
        let Some(version) = parse_version(&String::from_utf8_lossy(&output.stdout)) else {
            return Ok(Err(format!("`postgres --version` printed no version ({})", output.status)));
        };
        Ok(self
            .check_version(&version)
            .map(|()| Installation { bin_dir: bin_dir.to_path_buf(), version: version.text }))
    }

    fn check_version(&self, version: &Version) -> Result<(), String> {
        match self.cluster {
            Some((_, major)) if version.major != major => {
                Err(format!("{OTHER_VERSION}{}, but the data needs {major}", version.text))
            }
            _ if version.major < MINIMUM_MAJOR => Err(format!("PostgreSQL {} is too old", version.text)),
            _ => Ok(()),
        }
    }

    fn not_found(&self, rejected: &[String]) -> PostgresError {
        let searched = if rejected.is_empty() {
            format!("PATH, pg_config, {}", USUAL_FOLDERS.join(", "))
        } else {
            rejected.join(", ")
        };
        match self.cluster {
            Some((cluster, major)) => PostgresError::MajorMissing { cluster: cluster.to_path_buf(), major, searched },
            None => PostgresError::NotFound { searched },
        }
    }
}

/// Returns the absolute folders of `PATH`.
pub(super) fn path_folders() -> Vec<PathBuf> {
    on_path(&std::env::var_os("PATH").unwrap_or_default())
}

/// Returns the folder that `pg_config`, given as a command, names.
pub(super) fn pg_config_folder(mut pg_config: Command) -> Option<PathBuf> {
    let output = pg_config.arg("--bindir").stderr(Stdio::null()).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    Some(PathBuf::from(text.trim())).filter(|folder| folder.is_absolute())
}

fn on_path(path: &OsStr) -> Vec<PathBuf> {
    std::env::split_paths(path).filter(|folder| folder.is_absolute()).collect()
}

/// Follows the links of a folder. `PATH` often contains only links to the real folder, and `initdb` finds its
/// share files only from there.
fn resolved(folder: &Path) -> PathBuf {
    fs::canonicalize(folder.join("postgres"))
        .ok()
        .and_then(|program| program.parent().map(Path::to_path_buf))
        .filter(|real| contains_server(real))
        .unwrap_or_else(|| folder.to_path_buf())
}

fn contains_server(folder: &Path) -> bool {
    contains_programs(folder, &["postgres", "initdb"])
}

pub(super) fn contains_programs(folder: &Path, programs: &[&str]) -> bool {
    programs.iter().all(|program| folder.join(program).is_file())
}

pub(super) fn usual_folders() -> Vec<PathBuf> {
    let found = USUAL_FOLDERS.iter().flat_map(|pattern| expand(pattern)).collect();
    newest_first(found)
}

/// Expands the `*` of a pattern by reading the directory before it.
fn expand(pattern: &str) -> Vec<PathBuf> {
    let Some((before, after)) = pattern.split_once('*') else {
        return vec![PathBuf::from(pattern)];
    };
    let (parent, prefix) = before.rsplit_once('/').unwrap_or(("", before));
    let Ok(entries) = fs::read_dir(parent) else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| name.starts_with(prefix))
        .map(|name| PathBuf::from(format!("{parent}/{name}{after}")))
        .collect()
}

/// Sorts folders by the version in their name. Folders without a version come last.
fn newest_first(mut folders: Vec<PathBuf>) -> Vec<PathBuf> {
    folders.sort_by_key(|folder| std::cmp::Reverse(version_in(folder)));
    folders
}

fn version_in(folder: &Path) -> Option<u32> {
    let name = folder.parent()?.file_name()?.to_str()?;
    let digits = name.trim_start_matches(|c: char| !c.is_ascii_digit());
    leading_number(digits)
}

pub(super) struct Version {
    pub(super) major: u32,
    pub(super) text: String,
}

/// Parses `postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)`; also `19devel` and `18beta2`.
pub(super) fn parse_version(line: &str) -> Option<Version> {
    let text = line.split_once("(PostgreSQL)")?.1.split_whitespace().next()?;
    Some(Version { major: leading_number(text)?, text: text.to_owned() })
}

fn leading_number(text: &str) -> Option<u32> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text[..end].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(line: &str) -> Option<(u32, String)> {
        parse_version(line).map(|version| (version.major, version.text))
    }

    #[test]
    fn versions_are_read_from_packages_source_builds_and_prereleases() {
        assert_eq!(version("postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)\n"), Some((15, "15.18".into())));
        assert_eq!(version("postgres (PostgreSQL) 17.2"), Some((17, "17.2".into())));
        assert_eq!(version("postgres (PostgreSQL) 19devel"), Some((19, "19devel".into())));
        assert_eq!(version("postgres (PostgreSQL) 18beta2"), Some((18, "18beta2".into())));
        assert_eq!(version("bash: postgres: command not found"), None);
        assert_eq!(version(""), None);
    }

    #[test]
    fn the_newest_folder_comes_first_by_number_not_by_letter() {
        let folders =
            ["/usr/lib/postgresql/9.6/bin", "/usr/local/pgsql/bin", "/usr/pgsql-17/bin", "/opt/x/postgresql@16/bin"];
        let sorted = newest_first(folders.map(PathBuf::from).to_vec());
        let expected =
            ["/usr/pgsql-17/bin", "/opt/x/postgresql@16/bin", "/usr/lib/postgresql/9.6/bin", "/usr/local/pgsql/bin"];
        assert_eq!(sorted, expected.map(PathBuf::from));
    }

    #[test]
    fn relative_entries_of_path_are_ignored() {
        assert_eq!(on_path(OsStr::new("bin:/usr/bin::/opt/pg")), ["/usr/bin", "/opt/pg"].map(PathBuf::from));
    }

    #[test]
    fn a_star_is_expanded_within_its_directory() {
        let root = std::env::temp_dir().join(format!("waybill-expand-{}", std::process::id()));
        fs::create_dir_all(root.join("pgsql-16/bin")).unwrap();
        fs::create_dir_all(root.join("other-1/bin")).unwrap();
        let found = expand(&format!("{}/pgsql-*/bin", root.display()));
        fs::remove_dir_all(&root).unwrap();
        assert_eq!(found, [root.join("pgsql-16/bin")]);
    }
}
