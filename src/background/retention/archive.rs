//! Writes entries of the event log to a compressed file, and proves that they can be read back.
//!
//! The file gets its name only after it was read back from the disk and is exactly what was written. Until then it
//! has a name that begins with a dot and ends with `.part`. A part that a killed server left behind is deleted by
//! the next attempt.

use std::fs::{self, File};
use std::io::{self, BufReader, Read, Write};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use sha2::{Digest, Sha256};

/// The end of the name of a file that is not whole yet.
const PART: &str = ".part";

/// The maximum number of different archives of one week.
const MAX_SAME_NAMES: u32 = 100;

/// What was written to a file, or read from it.
#[derive(Debug, PartialEq, Eq)]
struct Content {
    lines: u64,
    digest: [u8; 32],
}

#[derive(Default)]
struct Tally {
    lines: u64,
    digest: Sha256,
}

impl Tally {
    fn add(&mut self, bytes: &[u8]) {
        self.lines += bytes.split(|byte| *byte == b'\n').count() as u64 - 1;
        self.digest.update(bytes);
    }

    fn content(self) -> Content {
        Content { lines: self.lines, digest: self.digest.finalize().into() }
    }
}

/// A file that is being written.
pub(super) struct Archive {
    dir: PathBuf,
    name: String,
    part: PathBuf,
    out: GzEncoder<File>,
    written: Tally,
}

impl Archive {
    /// Begins the file `<name>.ndjson.gz`.
    pub(super) fn begin(dir: &Path, name: &str) -> io::Result<Self> {
        remove_parts(dir, name)?;
        // Another server may write the same file into the same folder. Both have the same content.
        let part =
            dir.join(format!(".{name}.{}-{:08x}{PART}", std::process::id(), getrandom::u32().unwrap_or_default()));
        let out = GzEncoder::new(File::create_new(&part)?, Compression::default());
        Ok(Archive { dir: dir.to_owned(), name: name.to_owned(), part, out, written: Tally::default() })
    }

    /// Adds whole lines.
    pub(super) fn add(&mut self, lines: &str) -> io::Result<()> {
        self.written.add(lines.as_bytes());
        self.out.write_all(lines.as_bytes())
    }

    /// Reads the file back and gives it its name. Fails unless it contains exactly the lines that were added, and
    /// these are `lines` lines.
    pub(super) fn finish(self, lines: u64) -> io::Result<PathBuf> {
        self.out.finish()?.sync_all()?;
        let written = self.written.content();
        let read = read_back(&self.part)?;
        if read != written || read.lines != lines {
            let what = format!("{lines} lines expected, {} written, {} read back", written.lines, read.lines);
            return Err(io::Error::other(format!("the archive of {} is not whole: {what}", self.name)));
        }
        let file = give_name(&self.part, &self.dir, &self.name, &read)?;
        // A new name is on disk only after its folder is.
        File::open(&self.dir)?.sync_all()?;
        Ok(file)
    }
}

/// Gives a file its name. An archive of the same week that is there already stays. If another server has written it,
/// it has the same content, and this one is not needed. If it was written before the database was restored, it may
/// have more lines, and this one gets a number.
fn give_name(part: &Path, dir: &Path, name: &str, content: &Content) -> io::Result<PathBuf> {
    let numbers = std::iter::once(String::new()).chain((2..=MAX_SAME_NAMES).map(|number| format!("-{number}")));
    for number in numbers {
        let file = dir.join(format!("{name}{number}.ndjson.gz"));
        match fs::hard_link(part, &file) {
            Ok(()) => {
                fs::remove_file(part)?;
                return Ok(file);
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                if read_back(&file).is_ok_and(|there| there == *content) {
                    fs::remove_file(part)?;
                    return Ok(file);
                }
            }
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::other(format!("there are {MAX_SAME_NAMES} archives of {name}")))
}

/// Checks that files can be written to a folder: better now than when the first week is due.
pub(super) fn check_dir(dir: &Path) -> io::Result<()> {
    let trial = dir.join(format!(".trial.{}-{:08x}{PART}", std::process::id(), getrandom::u32().unwrap_or_default()));
    File::create_new(&trial)?;
    fs::remove_file(trial)
}

fn read_back(path: &Path) -> io::Result<Content> {
    let mut reader = GzDecoder::new(BufReader::new(File::open(path)?));
    let (mut tally, mut buffer) = (Tally::default(), vec![0; 64 * 1024]);
    loop {
        match reader.read(&mut buffer)? {
            0 => return Ok(tally.content()),
            count => tally.add(&buffer[..count]),
        }
    }
}

fn remove_parts(dir: &Path, name: &str) -> io::Result<()> {
    let begin = format!(".{name}.");
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let file = entry.file_name().to_string_lossy().into_owned();
        if file.starts_with(&begin) && file.ends_with(PART) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(dir: &Path) -> Vec<String> {
        let files = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned());
        files.collect()
    }

    #[test]
    fn an_archive_has_its_name_only_when_it_is_whole() {
        let dir = tempfile::tempdir().unwrap();
        let mut archive = Archive::begin(dir.path(), "week").unwrap();
        archive.add("{\"id\":1}\n{\"id\":2}\n").unwrap();
        archive.add("{\"id\":3}\n").unwrap();
        assert!(names(dir.path()).iter().all(|name| name.ends_with(PART)));
        let file = archive.finish(3).unwrap();
        assert_eq!(names(dir.path()), ["week.ndjson.gz"]);
        let mut text = String::new();
        GzDecoder::new(File::open(file).unwrap()).read_to_string(&mut text).unwrap();
        assert_eq!(text, "{\"id\":1}\n{\"id\":2}\n{\"id\":3}\n");
    }

    #[test]
    fn an_archive_with_too_few_lines_or_a_damaged_one_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let mut archive = Archive::begin(dir.path(), "week").unwrap();
        archive.add("{}\n").unwrap();
        assert!(archive.finish(2).unwrap_err().to_string().contains("2 lines expected, 1 written, 1 read back"));
        let mut archive = Archive::begin(dir.path(), "week").unwrap();
        archive.add("{}\n").unwrap();
        // What the disk returns is not what was written to it.
        archive.written.add(b"{}\n");
        assert!(archive.finish(2).unwrap_err().to_string().contains("2 written, 1 read back"));
        assert!(names(dir.path()).iter().all(|name| name.ends_with(PART)));
    }

    #[test]
    fn a_part_that_was_left_behind_is_deleted() {
        let dir = tempfile::tempdir().unwrap();
        drop(Archive::begin(dir.path(), "week"));
        drop(Archive::begin(dir.path(), "other"));
        Archive::begin(dir.path(), "week").unwrap().finish(0).unwrap();
        let mut left = names(dir.path());
        left.sort();
        assert_eq!(left.len(), 2, "{left:?}");
        assert!(left[0].starts_with(".other.") && left[1] == "week.ndjson.gz", "{left:?}");
    }
}
