//! One Waybill per data directory.
//!
//! PostgreSQL's own `postmaster.pid` cannot do this: it is there too while a
//! dead server's file lingers, and a second Waybill would fight the first one's
//! supervisor for the restart. So the Waybill *process* holds an `flock` on a
//! file of its own. The kernel drops that with the process, however it dies, so
//! there is no stale lock; the pid inside is for the error message only.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::thread;
use std::time::Duration;

use nix::fcntl::OFlag;

use super::error::PostgresError;

/// Held as long as it lives. The descriptor is close-on-exec: PostgreSQL must
/// not inherit the lock, or it would outlive us by as long as the server does.
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
                return Err(PostgresError::InUse { data_dir: data_dir.to_path_buf(), pid: holder(&mut file) });
            }
            Err(TryLockError::Error(error)) => return Err(PostgresError::io("lock", path)(error)),
        }
        meaning(&mut file).map_err(PostgresError::io("write", path))?;
        Ok(Self { _file: file })
    }
}

/// `O_NOFOLLOW`: root writes here, and must not be led by a link into another file.
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

fn meaning(file: &mut File) -> std::io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    writeln!(file, "{}", std::process::id())
}

/// The holder locks first and signs a moment later, hence the second look.
fn holder(file: &mut File) -> Option<u32> {
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
