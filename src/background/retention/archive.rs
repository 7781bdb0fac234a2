//! Writes entries of the event log to a compressed file, and proves that they can be read back.
//!
//! The file gets its name only after it was read back from the disk and is exactly what was written. Until then it
//! has a name that begins with a dot and ends with `.part`. A part is deleted when its archive is given up, or, if its
//! server was killed, before the next week is archived.

use std::fs::{self, File};
use std::io::{self, BufReader, Read, Write};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use sha2::{Digest, Sha256};

/// The end of the name of a file that is not whole yet.
const PART: &str = ".part";

/// The beginning of the names of the parts of all weeks.
const PARTS: &str = ".event_log_";

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

/// A file that is deleted at the end: it has another name by then, or is not whole.
struct Part(PathBuf);

impl Drop for Part {
    fn drop(&mut self) {
        // What cannot be deleted is tried again with the next week.
        let _ = fs::remove_file(&self.0);
    }
}

/// A file that is being written.
pub(super) struct Archive {
    dir: PathBuf,
    name: String,
    part: Part,
    out: GzEncoder<File>,
    written: Tally,
}

impl Archive {
    /// Begins the file `<name>.ndjson.gz`.
    pub(super) fn begin(dir: &Path, name: &str) -> io::Result<Self> {
        let part = unique_path(dir, name);
        let out = GzEncoder::new(File::create_new(&part)?, Compression::default());
        Ok(Archive { dir: dir.to_owned(), name: name.to_owned(), part: Part(part), out, written: Tally::default() })
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
        let read = read_back(&self.part.0)?;
        if read != written || read.lines != lines {
            let what = format!("{lines} lines expected, {} written, {} read back", written.lines, read.lines);
            return Err(io::Error::other(format!("the archive of {} is not whole: {what}", self.name)));
        }
        let file = give_name(&self.part.0, &self.dir, &self.name, &read)?;
        // A new name is on disk only after its folder is.
        File::open(&self.dir)?.sync_all()?;
        Ok(file)
    }
}

/// Gives a file another name. An archive of the same week that is there already stays. If a server was killed after it
/// had written it, it has the same content, and this one is not needed. If it was written before the database was
/// restored, it may have more lines, and this one gets a number.
fn give_name(part: &Path, dir: &Path, name: &str, content: &Content) -> io::Result<PathBuf> {
    let numbers = std::iter::once(String::new()).chain((2..=MAX_SAME_NAMES).map(|number| format!("-{number}")));
    for number in numbers {
        let file = dir.join(format!("{name}{number}.ndjson.gz"));
        match fs::hard_link(part, &file) {
            Ok(()) => return Ok(file),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                if read_back(&file).is_ok_and(|there| there == *content) {
                    return Ok(file);
                }
            }
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::other(format!("there are {MAX_SAME_NAMES} archives of {name}")))
}

/// Checks that files can be written to a folder and get another name by a hard link, which some file systems do not have:
/// better now than when the first week is due.
pub(super) fn check_dir(dir: &Path) -> io::Result<()> {
    let (trial, link) = (unique_path(dir, "trial"), unique_path(dir, "trial"));
    File::create_new(&trial)?;
    let linked = fs::hard_link(&trial, &link).and_then(|()| fs::remove_file(&link));
    fs::remove_file(trial)?;
    linked.map_err(|error| io::Error::new(error.kind(), format!("a hard link, which archives need: {error}")))
}

fn unique_path(dir: &Path, name: &str) -> PathBuf {
    dir.join(format!(".{name}.{}-{:08x}{PART}", std::process::id(), getrandom::u32().unwrap_or_default()))
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

/// Deletes the parts that killed servers have left behind. Nobody may be archiving meanwhile.
pub(super) fn remove_parts(dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let file = entry.file_name().to_string_lossy().into_owned();
        if file.starts_with(PARTS) && file.ends_with(PART) {
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
        assert_eq!(names(dir.path()), [""; 0]);
    }

    #[test]
    fn an_archive_that_is_given_up_leaves_no_part() {
        let dir = tempfile::tempdir().unwrap();
        let archive = Archive::begin(dir.path(), "week").unwrap();
        assert_eq!(names(dir.path()).len(), 1);
        drop(archive);
        assert_eq!(names(dir.path()), [""; 0]);
    }

    #[test]
    fn parts_that_were_left_behind_are_deleted_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let kept = [".event_log_notes", ".other.1-00000001.part", "event_log_20261116.part"];
        for name in kept.iter().chain(&[".event_log_20261116.1-00000001.part", ".event_log_20261123.1-00000002.part"]) {
            fs::write(dir.path().join(name), "").unwrap();
        }
        remove_parts(dir.path()).unwrap();
        let mut left = names(dir.path());
        left.sort();
        assert_eq!(left, kept);
    }

    #[test]
    fn a_check_leaves_nothing_in_the_folder() {
        let dir = tempfile::tempdir().unwrap();
        check_dir(dir.path()).unwrap();
        assert_eq!(names(dir.path()), [""; 0]);
    }
}
