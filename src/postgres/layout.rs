//! The layout of the data directory.
//!
//! | entry | content | mode |
//! |---|---|---|
//! | `postgres/` | the cluster | 0700 |
//! | `postgres.init/` | a cluster being created, renamed when complete | 0700 |
//! | `run/` | the socket | 0700 |
//! | `password` | the password of the role `waybill` (`password.new` while it is written) | 0600 |
//! | `waybill.lock` | held by the running server | 0644 |
//!
//! Other entries of the directory are never read, changed or removed.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::unistd::{User, geteuid};

use super::error::PostgresError;
use super::owner::Owner;

const SYSTEM_DATA_DIR: &str = "/var/lib/waybill";

#[derive(Debug, Clone)]
pub(super) struct Layout {
    data_dir: PathBuf,
}

impl Layout {
    /// Resolves `data_dir`, which need not exist yet. Links in its existing part are resolved, because
    /// PostgreSQL's user must be able to enter the real parents.
    pub(super) fn new(data_dir: &Path) -> Result<Self, PostgresError> {
        let absolute = std::path::absolute(data_dir).map_err(PostgresError::io("resolve", data_dir))?;
        let existing = nearest_existing(&absolute);
        let real = fs::canonicalize(existing).map_err(PostgresError::io("resolve", existing))?;
        let data_dir = match absolute.strip_prefix(existing) {
            Ok(missing) if !missing.as_os_str().is_empty() => real.join(missing),
            _ => real,
        };
        Ok(Self { data_dir })
    }

    pub(super) fn data_dir(&self) -> &Path {
        &self.data_dir
    }

    pub(super) fn cluster(&self) -> PathBuf {
        self.data_dir.join("postgres")
    }

    pub(super) fn unfinished_cluster(&self) -> PathBuf {
        self.data_dir.join("postgres.init")
    }

    pub(super) fn run(&self) -> PathBuf {
        self.data_dir.join("run")
    }

    pub(super) fn password(&self) -> PathBuf {
        self.data_dir.join("password")
    }

    pub(super) fn lock(&self) -> PathBuf {
        self.data_dir.join("waybill.lock")
    }

    /// Returns the major version of the cluster, or `None` if there is no cluster yet.
    pub(super) fn cluster_major(&self) -> Result<Option<u32>, PostgresError> {
        let cluster = self.cluster();
        let path = cluster.join("PG_VERSION");
        match fs::read_to_string(&path) {
            Ok(text) => match text.trim().parse() {
                Ok(major) => Ok(Some(major)),
                Err(_) => Err(PostgresError::NotACluster { cluster }),
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound && is_free(&cluster) => Ok(None),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(PostgresError::NotACluster { cluster }),
            Err(error) => Err(PostgresError::io("read", &path)(error)),
        }
    }

    /// Creates the data directory and its parents. Access is checked first, so a failure leaves nothing
    /// behind.
    pub(super) fn create(&self, owner: &Owner, probe: &Path) -> Result<(), PostgresError> {
        owner.check_reach(nearest_existing(&self.data_dir), probe)?;
        let mut missing: Vec<&Path> = self.data_dir.ancestors().take_while(|path| !path.exists()).collect();
        missing.reverse();
        for directory in missing {
            create_parent(directory, owner)?;
        }
        Ok(())
    }

    /// Makes renames and new files in the data directory survive a power cut.
    pub(super) fn sync(&self) -> Result<(), PostgresError> {
        File::open(&self.data_dir)
            .and_then(|directory| directory.sync_all())
            .map_err(PostgresError::io("sync", &self.data_dir))
    }
}

/// Creates a directory that only `owner` may enter.
pub(super) fn create_private(directory: &Path, owner: &Owner) -> Result<(), PostgresError> {
    DirBuilder::new().mode(0o700).create(directory).map_err(PostgresError::io("create", directory))?;
    owner.adopt(directory)
}

/// Creates a parent directory. If created by root, PostgreSQL's user must be able to enter it, regardless of
/// the umask.
fn create_parent(directory: &Path, owner: &Owner) -> Result<(), PostgresError> {
    match DirBuilder::new().mode(0o700).create(directory) {
        Ok(()) => {}
        // Two first starts at the same time: the lock, not this mkdir, decides which one continues.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(()),
        Err(error) => return Err(PostgresError::io("create", directory)(error)),
    }
    if owner.is_switched() {
        fs::set_permissions(directory, Permissions::from_mode(0o755)).map_err(PostgresError::io("chmod", directory))?;
    }
    Ok(())
}

fn nearest_existing(path: &Path) -> &Path {
    path.ancestors().find(|ancestor| ancestor.exists()).unwrap_or(Path::new("/"))
}

/// Whether a path is absent or an empty directory. A cluster can be renamed onto either.
fn is_free(directory: &Path) -> bool {
    match fs::read_dir(directory) {
        Ok(mut entries) => entries.next().is_none(),
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}

/// Returns `/var/lib/waybill` for root, whose home PostgreSQL's user cannot enter. Otherwise returns
/// `$XDG_DATA_HOME/waybill` or `~/.local/share/waybill`.
pub fn default_data_dir() -> PathBuf {
    let home = std::env::var_os("HOME").or_else(|| {
        let user = User::from_uid(geteuid()).ok().flatten()?;
        Some(user.dir.into_os_string())
    });
    data_dir_for(geteuid().is_root(), std::env::var_os("XDG_DATA_HOME"), home)
}

/// Relative values of both variables are ignored, as the XDG specification requires.
fn data_dir_for(root: bool, xdg_data_home: Option<OsString>, home: Option<OsString>) -> PathBuf {
    if root {
        return PathBuf::from(SYSTEM_DATA_DIR);
    }
    let absolute = |value: Option<OsString>| value.map(PathBuf::from).filter(|path| path.is_absolute());
    absolute(xdg_data_home)
        .or_else(|| absolute(home).map(|home| home.join(".local/share")))
        .map_or_else(|| PathBuf::from(SYSTEM_DATA_DIR), |data| data.join("waybill"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(root: bool, xdg: &str, home: &str) -> PathBuf {
        let value = |text: &str| (!text.is_empty()).then(|| OsString::from(text));
        data_dir_for(root, value(xdg), value(home))
    }

    #[test]
    fn the_data_directory_follows_the_user() {
        assert_eq!(chosen(true, "/x", "/root"), Path::new("/var/lib/waybill"));
        assert_eq!(chosen(false, "/x", "/home/a"), Path::new("/x/waybill"));
        assert_eq!(chosen(false, "", "/home/a"), Path::new("/home/a/.local/share/waybill"));
        assert_eq!(chosen(false, "relative", "/home/a"), Path::new("/home/a/.local/share/waybill"));
        assert_eq!(chosen(false, "", ""), Path::new("/var/lib/waybill"));
    }
}
