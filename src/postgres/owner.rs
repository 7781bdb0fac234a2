//! The user that runs PostgreSQL.
//!
//! PostgreSQL refuses to run as root. If an ordinary user starts Waybill, PostgreSQL runs as that
//! user. If root starts it, PostgreSQL runs as `postgres`, or as `nobody` if there is no such user. An
//! existing cluster keeps its owner, even if a user `postgres` was added after `nobody` created it.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{MetadataExt, lchown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::errno::Errno;
use nix::unistd::{Gid, Uid, User, getegid, geteuid};

use super::error::PostgresError;

#[derive(Debug, Clone)]
pub(super) struct Owner {
    uid: Uid,
    gid: Gid,
    name: String,
    /// Whether Waybill runs as root and PostgreSQL as another user.
    switched: bool,
}

impl Owner {
    /// Returns the owner of an existing cluster, or of the one to be created.
    pub(super) fn of(cluster: &Path) -> Result<Self, PostgresError> {
        // Any error other than "not found" is reported later, with its path, by the first write.
        let existing = fs::metadata(cluster).ok().map(|metadata| Uid::from_raw(metadata.uid()));
        if geteuid().is_root() { Self::for_root(cluster, existing) } else { Self::for_ordinary_user(cluster, existing) }
    }

    fn for_root(cluster: &Path, existing: Option<Uid>) -> Result<Self, PostgresError> {
        let unprivileged = || ["postgres", "nobody"].into_iter().find_map(user_named);
        let user = match existing {
            None => unprivileged().ok_or(PostgresError::NoUnprivilegedUser)?,
            Some(uid) if uid.is_root() => {
                let user = unprivileged().ok_or(PostgresError::NoUnprivilegedUser)?;
                return Err(wrong_owner(cluster, uid, user.name));
            }
            Some(uid) => user_of(uid).ok_or_else(|| wrong_owner(cluster, uid, "postgres".into()))?,
        };
        Ok(Self { uid: user.uid, gid: user.gid, name: user.name, switched: true })
    }

    fn for_ordinary_user(cluster: &Path, existing: Option<Uid>) -> Result<Self, PostgresError> {
        let uid = geteuid();
        let name = user_of(uid).map_or_else(|| uid.to_string(), |user| user.name);
        match existing {
            Some(other) if other != uid => Err(wrong_owner(cluster, other, name)),
            _ => Ok(Self { uid, gid: getegid(), name, switched: false }),
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn is_switched(&self) -> bool {
        self.switched
    }

    /// Returns a command that runs as this user, detached from the terminal, the working directory and the
    /// environment of Waybill. The environment may contain secrets, and variables such as `PGPORT` and `PGDATA`
    /// would change the server's behaviour.
    pub(super) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command
            .env_clear()
            .envs(["PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH"].into_iter().filter_map(inherited))
            .env("LC_ALL", "C")
            // This user may have no access to root's working directory, and initdb must read it.
            .current_dir("/")
            .stdin(Stdio::null())
            // Ctrl-C must reach only Waybill, which drains requests before it stops PostgreSQL.
            .process_group(0);
        if self.switched {
            // std also drops root's supplementary groups.
            command.uid(self.uid.as_raw()).gid(self.gid.as_raw());
        }
        command
    }

    /// Changes the owner of a file or directory that root created to this user.
    pub(super) fn adopt(&self, path: &Path) -> Result<(), PostgresError> {
        if !self.switched {
            return Ok(());
        }
        lchown(path, Some(self.uid.as_raw()), Some(self.gid.as_raw())).map_err(PostgresError::io("chown", path))
    }

    /// Checks that this user can enter `directory`; the error names the first inaccessible parent. Runs the
    /// harmless program `probe` in the directory, because permission bits do not show ACLs.
    pub(super) fn check_reach(&self, directory: &Path, probe: &Path) -> Result<(), PostgresError> {
        if !self.switched || self.can_enter(directory, probe)? {
            return Ok(());
        }
        let mut ancestors: Vec<&Path> = directory.ancestors().collect();
        ancestors.reverse();
        for ancestor in ancestors {
            if !self.can_enter(ancestor, probe)? {
                return Err(self.unreachable(ancestor));
            }
        }
        Err(self.unreachable(directory))
    }

    /// std changes the working directory after switching the user, so the spawn fails if this user has no
    /// access to the directory.
    fn can_enter(&self, directory: &Path, probe: &Path) -> Result<bool, PostgresError> {
        let outcome = self
            .command(probe)
            .arg("--version")
            .current_dir(directory)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        match outcome {
            Ok(_) => Ok(true),
            Err(error) if error.raw_os_error() == Some(Errno::EACCES as i32) => Ok(false),
            Err(error) => Err(PostgresError::io("enter", directory)(error)),
        }
    }

    fn unreachable(&self, directory: &Path) -> PostgresError {
        PostgresError::Unreachable { user: self.name.clone(), directory: directory.to_path_buf() }
    }
}

fn inherited(name: &'static str) -> Option<(&'static str, std::ffi::OsString)> {
    std::env::var_os(name).map(|value| (name, value))
}

fn user_named(name: &str) -> Option<User> {
    User::from_name(name).ok().flatten().filter(|user| !user.uid.is_root())
}

fn user_of(uid: Uid) -> Option<User> {
    User::from_uid(uid).ok().flatten()
}

fn wrong_owner(cluster: &Path, owner: Uid, user: String) -> PostgresError {
    PostgresError::WrongOwner {
        cluster: PathBuf::from(cluster),
        owner: user_of(owner).map_or_else(|| format!("user {owner}"), |user| format!("`{}`", user.name)),
        user,
    }
}
