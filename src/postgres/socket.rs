//! The directory of the Unix socket.
//!
//! Normally this is `run/`. But the kernel limits a socket's path to about 104 bytes (108 on Linux), and
//! clients split a host at commas, encoded or not. If the path of the data directory is too long or
//! contains a comma, a private directory under the system's temporary directory is used instead, and a
//! note in `run/` contains its path. With the note, the next start removes what a killed server left.

use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::error::PostgresError;
use super::init::random_hex;
use super::layout::create_private;
use super::owner::Owner;
use super::settings::PORT;

const LONGEST_PATH: usize = 100;
const PREFIX: &str = "waybill-";
/// The file in `run/` with the path of another directory.
const NOTE: &str = "elsewhere";

/// The socket directory. A directory under the temporary directory is removed on drop.
#[derive(Debug)]
pub(super) struct SocketDir {
    path: PathBuf,
    note: Option<PathBuf>,
}

impl SocketDir {
    pub(super) fn prepare(run: &Path, owner: &Owner, probe: &Path) -> Result<Self, PostgresError> {
        ensure_private(run, owner)?;
        let note = run.join(NOTE);
        remove_noted(&note);
        if fits(run) {
            return Ok(Self { path: run.to_path_buf(), note: None });
        }
        let path = short_directory(owner, probe)?;
        write_note(&note, &path).map_err(PostgresError::io("write", &note))?;
        Ok(Self { path, note: Some(note) })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for SocketDir {
    fn drop(&mut self) {
        if let Some(note) = &self.note {
            remove_noted(note);
        }
    }
}

/// Returns the socket directory of the server that runs at present.
pub(super) fn socket_dir_in_use(run: &Path) -> PathBuf {
    match fs::read(run.join(NOTE)) {
        Ok(path) => PathBuf::from(std::ffi::OsStr::from_bytes(&path)),
        Err(_) => run.to_path_buf(),
    }
}

fn fits(directory: &Path) -> bool {
    let socket = directory.join(socket_name());
    let path = socket.as_os_str().as_bytes();
    path.len() <= LONGEST_PATH && !path.contains(&b',')
}

fn socket_name() -> String {
    format!(".s.PGSQL.{PORT}")
}

/// Creates `run/`, or restores its owner and mode: it may be left from a start as another user.
fn ensure_private(run: &Path, owner: &Owner) -> Result<(), PostgresError> {
    match fs::symlink_metadata(run) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => create_private(run, owner),
        Err(error) => Err(PostgresError::io("read", run)(error)),
        Ok(metadata) if !metadata.is_dir() => {
            Err(PostgresError::io("use", run)(io::Error::from(io::ErrorKind::NotADirectory)))
        }
        Ok(_) => {
            owner.adopt(run)?;
            fs::set_permissions(run, Permissions::from_mode(0o700)).map_err(PostgresError::io("chmod", run))
        }
    }
}

/// Creates a directory with a short path. `TMPDIR` may be too long or inaccessible to PostgreSQL's user; `/tmp`
/// is neither.
fn short_directory(owner: &Owner, probe: &Path) -> Result<PathBuf, PostgresError> {
    let name = format!("{PREFIX}{}", random_hex(8)?);
    let preferred = std::env::temp_dir();
    let usable = fits(&preferred.join(&name)) && owner.check_reach(&preferred, probe).is_ok();
    let parent = if usable { preferred } else { PathBuf::from("/tmp") };
    // The name cannot be guessed, and mkdir fails if it exists, so no other user can have created it.
    let path = parent.join(name);
    create_private(&path, owner)?;
    Ok(path)
}

/// Writes the note. `create_new` does not follow a link at its path.
fn write_note(note: &Path, path: &Path) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(note)?;
    file.write_all(path.as_os_str().as_bytes())
}

/// Removes the directory named by the note. The note lies in a directory of the unprivileged user while
/// this process may be root. Therefore only directories with the expected prefix are changed, and only the
/// socket and its lock file are removed from them.
fn remove_noted(note: &Path) {
    let Ok(text) = fs::read(note) else { return };
    let path = Path::new(std::ffi::OsStr::from_bytes(&text));
    if path.is_absolute() && path.file_name().is_some_and(|name| name.as_bytes().starts_with(PREFIX.as_bytes())) {
        // Each may already be gone. At worst an empty temporary directory remains.
        let _ = fs::remove_file(path.join(socket_name()));
        let _ = fs::remove_file(path.join(format!("{}.lock", socket_name())));
        let _ = fs::remove_dir(path);
    }
    let _ = fs::remove_file(note);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_of_a_hundred_bytes_fits_and_one_more_does_not() {
        let longest = LONGEST_PATH - "//.s.PGSQL.5432".len();
        assert!(fits(Path::new(&format!("/{}", "x".repeat(longest)))));
        assert!(!fits(Path::new(&format!("/{}", "x".repeat(longest + 1)))));
    }

    #[test]
    fn a_path_with_a_comma_does_not_fit() {
        assert!(!fits(Path::new("/srv/a,b/run")));
    }
}
