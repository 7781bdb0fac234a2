//! The file of a backup: a header of fixed size, then the archive of `pg_dump`.
//!
//! | bytes | content |
//! |---|---|
//! | first line | `waybill backup 1`, and the SHA-256 of the rest of the header |
//! | up to 16,384 | the manifest as JSON, filled up with spaces, and a line feed |
//! | the rest | the archive, in `pg_dump`'s custom format |
//!
//! The header is written last, when everything that it says is known. So a file that was not finished is never taken
//! for a backup, whatever its name is.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use chrono::{DateTime, Utc};
use nix::fcntl::OFlag;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::BackupError;

/// The size of the header.
pub(crate) const HEADER_BYTES: usize = 16_384;
const MAGIC: &str = "waybill backup ";
const FORMAT: &str = "1";

/// The size of the pieces in which files are read.
pub(super) const PIECE_BYTES: usize = 256 * 1024;

/// What a backup contains.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Manifest {
    /// The version of Waybill that wrote it.
    pub waybill: String,
    /// The version of PostgreSQL that it was taken from.
    pub postgresql: String,
    /// The time of the snapshot, by the clock of the database.
    pub taken_at: DateTime<Utc>,
    /// The present history of the database, and the last id that it had issued.
    pub epoch: String,
    pub last_id: i64,
    /// The last migration that was applied.
    pub schema: String,
    /// The number of rows of every table.
    pub tables: BTreeMap<String, i64>,
    pub archive_bytes: u64,
    pub archive_sha256: String,
}

impl Manifest {
    pub(crate) fn rows(&self) -> i64 {
        self.tables.values().sum()
    }

    /// Returns the major version of PostgreSQL, or 0 if the manifest names none.
    pub(crate) fn postgresql_major(&self) -> u32 {
        let digits = self.postgresql.split(|c: char| !c.is_ascii_digit()).next();
        digits.and_then(|digits| digits.parse().ok()).unwrap_or(0)
    }
}

/// A backup that is being written, under another name than its own. It is removed unless it is finished.
pub(crate) struct Draft {
    file: File,
    path: PathBuf,
    target: PathBuf,
    is_finished: bool,
}

impl Draft {
    /// Creates the file for a backup at `target`: a file that does not exist, or a folder, in which the backup is named
    /// by the time.
    pub(crate) fn create(target: &Path, now: DateTime<Utc>) -> Result<Self, BackupError> {
        let (target, path) = if target.is_dir() {
            let name = format!("waybill-{}.backup", now.format("%Y%m%dT%H%M%SZ"));
            // One name for all: what a killed backup has left is used again, and does not pile up.
            (target.join(name), target.join("waybill.backup.partial"))
        } else {
            let mut name = target.as_os_str().to_owned();
            name.push(".partial");
            (target.to_path_buf(), PathBuf::from(name))
        };
        refuse_existing(&target)?;
        let file = open_draft(&path)?;
        Ok(Self { file, path, target, is_finished: false })
    }

    /// Writes the archive. Returns its size and its checksum.
    pub(super) fn write_archive(
        &mut self,
        archive: &mut dyn Read,
        on_progress: &dyn Fn(u64),
    ) -> Result<(u64, String), BackupError> {
        let to_write = |error| BackupError::io("write", &self.path)(error);
        self.file.seek(SeekFrom::Start(HEADER_BYTES as u64)).map_err(to_write)?;
        let (mut bytes, mut hash) = (0, Sha256::new());
        let mut piece = vec![0; PIECE_BYTES];
        loop {
            let read = match archive.read(&mut piece) {
                Ok(0) => break,
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(BackupError::io("read the archive for", &self.path)(error)),
            };
            hash.update(&piece[..read]);
            self.file.write_all(&piece[..read]).map_err(to_write)?;
            bytes += read as u64;
            on_progress(bytes);
        }
        Ok((bytes, hex(&hash.finalize())))
    }

    /// Writes the header and gives the file its name. Afterwards it survives a power cut.
    pub(crate) fn finish(mut self, manifest: &Manifest) -> Result<PathBuf, BackupError> {
        let header = header(manifest).ok_or(BackupError::Damaged {
            file: self.path.clone(),
            reason: "its manifest is larger than its header",
        })?;
        let to_write = |error| BackupError::io("write", &self.path)(error);
        self.file.rewind().map_err(to_write)?;
        self.file.write_all(&header).map_err(to_write)?;
        self.file.sync_all().map_err(to_write)?;
        refuse_existing(&self.target)?;
        fs::rename(&self.path, &self.target).map_err(BackupError::io("rename", &self.path))?;
        self.is_finished = true;
        let folder = self.target.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(folder).and_then(|folder| folder.sync_all()).map_err(BackupError::io("sync", folder))?;
        Ok(self.target.clone())
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if !self.is_finished {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn refuse_existing(target: &Path) -> Result<(), BackupError> {
    match fs::symlink_metadata(target) {
        Ok(_) => Err(BackupError::Exists(target.to_path_buf())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(BackupError::io("write", target)(error)),
    }
}

/// Opens an empty file that only its owner may read. It may be left from a backup that was killed, but not belong to one
/// that runs, whose process holds a lock of it.
fn open_draft(path: &Path) -> Result<File, BackupError> {
    let to_write = || BackupError::io("write", path);
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600).custom_flags(OFlag::O_NOFOLLOW.bits());
    let file = options.open(path).map_err(to_write())?;
    file.try_lock().map_err(|_| BackupError::InProgress(path.to_path_buf()))?;
    // The other process may have renamed it between these two steps: then it is a finished backup.
    let (ours, there) = (file.metadata().map_err(to_write())?, fs::symlink_metadata(path).map_err(to_write())?);
    if (ours.dev(), ours.ino()) != (there.dev(), there.ino()) {
        return Err(BackupError::InProgress(path.to_path_buf()));
    }
    file.set_permissions(Permissions::from_mode(0o600)).map_err(to_write())?;
    file.set_len(0).map_err(to_write())?;
    Ok(file)
}

/// Returns the header, or `None` if the manifest does not fit.
fn header(manifest: &Manifest) -> Option<Vec<u8>> {
    let line_bytes = MAGIC.len() + FORMAT.len() + 1 + 64 + 1;
    let mut rest = serde_json::to_vec(manifest).ok()?;
    let room = HEADER_BYTES - line_bytes - 1;
    if rest.len() > room {
        return None;
    }
    rest.resize(room, b' ');
    rest.push(b'\n');
    let line = format!("{MAGIC}{FORMAT} {}\n", hex(&Sha256::digest(&rest)));
    Some([line.into_bytes(), rest].concat())
}

/// A backup whose header was read and found whole.
#[derive(Debug)]
pub(crate) struct BackupFile {
    file: File,
    path: PathBuf,
    pub manifest: Manifest,
}

impl BackupFile {
    /// Opens a backup, and checks its header and its size.
    pub(crate) fn open(path: &Path) -> Result<Self, BackupError> {
        let to_read = || BackupError::io("read", path);
        let file = File::open(path).map_err(to_read())?;
        let has = file.metadata().map_err(to_read())?.len();
        let mut header = Vec::new();
        (&file).take(HEADER_BYTES as u64).read_to_end(&mut header).map_err(to_read())?;
        let manifest = read_header(path, &header, has)?;
        let expected = HEADER_BYTES as u64 + manifest.archive_bytes;
        if has < expected {
            return Err(BackupError::Truncated { file: path.to_path_buf(), has, expected });
        }
        if has > expected {
            return Err(BackupError::Damaged { file: path.to_path_buf(), reason: "it is longer than it should be" });
        }
        Ok(Self { file, path: path.to_path_buf(), manifest })
    }

    /// Reads the archive to its end and passes it on. Fails if it is not the one that was written.
    pub(crate) fn read_archive(
        &mut self,
        pass_on: &mut dyn FnMut(&[u8]) -> io::Result<()>,
        on_progress: &dyn Fn(u64),
    ) -> Result<(), BackupError> {
        self.file.seek(SeekFrom::Start(HEADER_BYTES as u64)).map_err(BackupError::io("read", &self.path))?;
        let (mut bytes, mut hash) = (0, Sha256::new());
        let mut piece = vec![0; PIECE_BYTES];
        loop {
            let read = self.file.read(&mut piece).map_err(BackupError::io("read", &self.path))?;
            if read == 0 {
                break;
            }
            hash.update(&piece[..read]);
            pass_on(&piece[..read]).map_err(BackupError::io("pass on", &self.path))?;
            bytes += read as u64;
            on_progress(bytes);
        }
        if hex(&hash.finalize()) != self.manifest.archive_sha256 {
            let reason = "its content is not what was written (the checksums differ)";
            return Err(BackupError::Damaged { file: self.path.clone(), reason });
        }
        Ok(())
    }

    /// Reads the whole file and compares it with its checksum.
    pub(crate) fn verify(&mut self, on_progress: &dyn Fn(u64)) -> Result<(), BackupError> {
        self.read_archive(&mut |_| Ok(()), on_progress)
    }
}

fn read_header(path: &Path, header: &[u8], has: u64) -> Result<Manifest, BackupError> {
    let foreign = || BackupError::Foreign(path.to_path_buf());
    let damaged = |reason| BackupError::Damaged { file: path.to_path_buf(), reason };
    let line = header.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let line = str::from_utf8(line).map_err(|_| foreign())?;
    let (format, checksum) = line.strip_prefix(MAGIC).and_then(|rest| rest.split_once(' ')).ok_or_else(foreign)?;
    if format != FORMAT {
        return Err(BackupError::OtherFormat { file: path.to_path_buf(), format: format.to_owned() });
    }
    if header.len() < HEADER_BYTES {
        return Err(BackupError::Truncated { file: path.to_path_buf(), has, expected: HEADER_BYTES as u64 });
    }
    let rest = &header[line.len() + 1..];
    if hex(&Sha256::digest(rest)) != checksum {
        return Err(damaged("its header is not what was written (the checksums differ)"));
    }
    serde_json::from_slice(rest).map_err(|_| damaged("its manifest cannot be read"))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut hex, byte| {
        // Writing to a String cannot fail.
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest() -> Manifest {
        Manifest {
            waybill: "0.1.0".into(),
            postgresql: "15.18".into(),
            taken_at: Utc::now(),
            epoch: "abcdefgh".into(),
            last_id: 7,
            schema: "20261118000023".into(),
            tables: BTreeMap::from([("events".into(), 3)]),
            archive_bytes: 0,
            archive_sha256: String::new(),
        }
    }

    fn written(folder: &Path, archive: &[u8]) -> PathBuf {
        let mut draft = Draft::create(&folder.join("a.backup"), Utc::now()).unwrap();
        let (archive_bytes, archive_sha256) = draft.write_archive(&mut &*archive, &|_| ()).unwrap();
        draft.finish(&Manifest { archive_bytes, archive_sha256, ..manifest() }).unwrap()
    }

    fn problem(bytes: &[u8]) -> Option<String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        fs::write(&path, bytes).unwrap();
        let verified = BackupFile::open(&path).and_then(|mut file| file.verify(&|_| ()));
        verified.err().map(|error| error.to_string())
    }

    #[test]
    fn every_changed_or_missing_byte_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let whole = fs::read(written(folder.path(), b"an archive of some bytes")).unwrap();
        assert_eq!(problem(&whole), None);
        for at in (0..whole.len()).step_by(97).chain(whole.len() - 24..whole.len()) {
            let mut changed = whole.clone();
            changed[at] ^= 0x10;
            assert!(problem(&changed).is_some(), "byte {at}");
        }
        for length in [0, 1, 20, 90, HEADER_BYTES - 1, HEADER_BYTES, whole.len() - 1] {
            assert!(problem(&whole[..length]).is_some(), "{length} bytes");
        }
        assert!(problem(&[whole.as_slice(), b"x"].concat()).is_some_and(|problem| problem.contains("longer")));
        assert!(problem(&whole[..whole.len() - 1]).is_some_and(|problem| problem.contains("truncated")));
        assert!(problem(b"PGDMP something").is_some_and(|problem| problem.contains("not a backup")));
    }

    #[test]
    fn a_draft_that_is_dropped_leaves_nothing_and_a_finished_one_only_the_backup() {
        let folder = tempfile::tempdir().unwrap();
        let names = || fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>();
        drop(Draft::create(folder.path(), Utc::now()).unwrap());
        assert_eq!(names(), [""; 0]);
        let path = written(folder.path(), b"x");
        assert_eq!(names(), ["a.backup"]);
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert!(matches!(Draft::create(&path, Utc::now()), Err(BackupError::Exists(_))));
    }

    #[test]
    fn what_a_killed_backup_has_left_is_used_again_but_not_what_another_one_writes() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("waybill.backup.partial"), "left").unwrap();
        let first = Draft::create(folder.path(), Utc::now()).unwrap();
        assert_eq!(first.file.metadata().unwrap().len(), 0);
        assert!(matches!(Draft::create(folder.path(), Utc::now()), Err(BackupError::InProgress(_))));
    }

    #[test]
    fn the_largest_manifest_fits_or_is_refused() {
        let tables = (0..600).map(|number| (format!("a_table_with_a_long_name_{number}"), i64::MAX)).collect();
        assert!(header(&Manifest { tables, ..manifest() }).is_none());
        let tables = (0..200).map(|number| (format!("a_table_with_a_long_name_{number}"), i64::MAX)).collect();
        assert_eq!(header(&Manifest { tables, ..manifest() }).map(|header| header.len()), Some(HEADER_BYTES));
    }
}
