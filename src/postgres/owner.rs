//! As whom PostgreSQL runs.
//!
//! PostgreSQL refuses root. Started by an ordinary user it runs as that user;
//! started by root it runs as `postgres`, else `nobody`. A cluster that exists
//! already decides for itself: its owner stays its owner, even when a user
//! `postgres` was installed after `nobody` had created it.

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
    /// True when we are root and PostgreSQL has to be someone else.
    switched: bool,
}

impl Owner {
    /// The owner of the cluster in `cluster`, or of the one to be made there.
    pub(super) fn of(cluster: &Path) -> Result<Self, PostgresError> {
        // An error other than "not found" comes back, with its path, from the first write there.
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

    /// A command that runs as this user, out of reach of our terminal, our
    /// working directory and our environment: the last may hold secrets, and
    /// `PGPORT`, `PGDATA` and their kin would change what the server does.
    pub(super) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command
            .env_clear()
            .envs(["PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH"].into_iter().filter_map(inherited))
            .env("LC_ALL", "C")
            // The cwd of root may be closed to this user, and initdb insists on reading it.
            .current_dir("/")
            .stdin(Stdio::null())
            // Ctrl-C is for us: we drain first and stop PostgreSQL afterwards.
            .process_group(0);
        if self.switched {
            // std drops root's supplementary groups along with the uid.
            command.uid(self.uid.as_raw()).gid(self.gid.as_raw());
        }
        command
    }

    /// Hands a file or directory that we made as root to this user.
    pub(super) fn adopt(&self, path: &Path) -> Result<(), PostgresError> {
        if !self.switched {
            return Ok(());
        }
        lchown(path, Some(self.uid.as_raw()), Some(self.gid.as_raw())).map_err(PostgresError::io("chown", path))
    }

    /// Refuses `directory` when this user may not pass through it, naming the
    /// first parent that is closed. `probe` is a harmless program to try it with:
    /// entering for real also honours ACLs, which permission bits do not show.
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

    /// std enters the working directory after dropping root, so a directory
    /// closed to this user fails the spawn.
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
