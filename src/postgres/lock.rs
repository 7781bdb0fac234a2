//! Ensures that only one Waybill uses a data directory.
//!
//! PostgreSQL's `postmaster.pid` is not sufficient: it also exists after a server has died, and a
//! second Waybill would compete with the supervisor of the first one for the restart. Therefore the
//! Waybill *process* holds an `flock` on its own file. The kernel releases it when the process ends for
//! any reason, so there are no stale locks. The pid in the file is only for the error message.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::thread;
use std::time::Duration;

use nix::fcntl::OFlag;

use super::error::PostgresError;

/// The lock, held until dropped. The descriptor is close-on-exec: if PostgreSQL inherited the lock, it
/// would stay held as long as the server runs.
#[derive(Debug)]
pub(super) struct DirectoryLock {
    _file: File,
}

impl DirectoryLock {
    pub(super) fn acquire(path: &Path, data_dir: &Path) -> Result<Self, PostgresError> {
        let mut file = open(path).map_err(PostgresError::io("open the lock file", path))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(PostgresError::InUse { data_dir: data_dir.to_path_buf(), pid: read_holder(&mut file) });
            }
            Err(TryLockError::Error(error)) => return Err(PostgresError::io("lock", path)(error)),
        }
        write_pid(&mut file).map_err(PostgresError::io("write", path))?;
        Ok(Self { _file: file })
    }
}

/// Opens the lock file. `O_NOFOLLOW`: root writes here, and a link must not redirect it to another file.
fn open(path: &Path) -> std::io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o644)
        .custom_flags(OFlag::O_NOFOLLOW.bits())
        .open(path)
}

fn write_pid(file: &mut File) -> std::io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    writeln!(file, "{}", std::process::id())
}

/// Returns the pid of the holder. Retries because the holder writes its pid only after taking the lock.
fn read_holder(file: &mut File) -> Option<u32> {
    for _ in 0..20 {
        let mut text = String::new();
        file.rewind().ok()?;
        file.read_to_string(&mut text).ok()?;
        if let Ok(pid) = text.trim().parse() {
            return Some(pid);
        }
        thread::sleep(Duration::from_millis(5));
    }
    None
}
