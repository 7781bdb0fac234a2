//! Making the cluster, once.
//!
//! The order is what survives a crash at any point: the password is on disk
//! before the cluster that needs it has its name, and `initdb` works in
//! `postgres.init`, renamed to `postgres` when complete. So `postgres/` is either
//! absent or whole, and whatever stands in `postgres.init` may be thrown away.

use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::Output;
use std::thread;
use std::time::Duration;

use super::error::PostgresError;
use super::find::Installation;
use super::launch::{ParentDeath, die_with_parent};
use super::layout::{Layout, create_private};
use super::owner::Owner;

/// The role we connect as.
pub(super) const ROLE: &str = "waybill";

const PASSWORD_BYTES: usize = 24;

/// Makes the cluster unless it exists; returns the password.
pub(super) fn init_cluster(
    layout: &Layout,
    installation: &Installation,
    owner: &Owner,
) -> Result<String, PostgresError> {
    let known = read_password(&layout.password())?;
    if layout.cluster_major()?.is_some() {
        return known
            .ok_or_else(|| PostgresError::PasswordLost { cluster: layout.cluster(), password: layout.password() });
    }
    // A password without a cluster: an earlier try died in between. It is as good as a new one.
    let password = match known {
        Some(password) => password,
        None => write_password(layout)?,
    };
    // initdb reads it as PostgreSQL's user.
    owner.adopt(&layout.password())?;
    create_cluster(layout, installation, owner)?;
    Ok(password)
}

fn create_cluster(layout: &Layout, installation: &Installation, owner: &Owner) -> Result<(), PostgresError> {
    let unfinished = layout.unfinished_cluster();
    remove_leftovers(&unfinished)?;
    create_private(&unfinished, owner)?;
    log::info!(version = installation.version.as_str(); "creating the database in {}", layout.cluster().display());
    run_initdb(layout, installation, owner)?;
    // initdb has synced the files; the rename makes them the cluster, in one step.
    fs::rename(&unfinished, layout.cluster()).map_err(PostgresError::io("rename", &unfinished))?;
    layout.sync()
}

fn run_initdb(layout: &Layout, installation: &Installation, owner: &Owner) -> Result<(), PostgresError> {
    let program = installation.program("initdb");
    let mut command = owner.command(&program);
    command
        .arg("--pgdata")
        .arg(layout.unfinished_cluster())
        .arg("--pwfile")
        .arg(layout.password())
        .args(["--username", ROLE, "--auth", "scram-sha-256", "--encoding", "UTF8"])
        // Plain byte order: indexes that no upgrade of the system's locales can spoil.
        .arg("--no-locale")
        // A disk that lies is found at the first read, not years later in a backup.
        .arg("--data-checksums");
    // Killed outright: it would otherwise go on writing where the next try cleans up.
    die_with_parent(&mut command, ParentDeath::Kill);
    let output = command.output().map_err(PostgresError::io("run", &program))?;
    if output.status.success() {
        return Ok(());
    }
    Err(PostgresError::InitFailed { status: output.status.to_string(), lines: last_output(&output) })
}

fn last_output(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(10)..].join(" | ")
}

/// Retried for a moment: a child of an `initdb` that was just killed may still add files.
fn remove_leftovers(directory: &Path) -> Result<(), PostgresError> {
    let mut tries = 0;
    loop {
        match fs::remove_dir_all(directory) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty && tries < 20 => tries += 1,
            Err(error) => return Err(PostgresError::io("remove", directory)(error)),
        }
        thread::sleep(Duration::from_millis(100));
    }
}

/// `None` when there is no such file. One with other content is not overwritten:
/// ours appears whole or not at all, so that one belongs to somebody else.
fn read_password(path: &Path) -> Result<Option<String>, PostgresError> {
    match fs::read_to_string(path) {
        Ok(text) if is_whole(text.trim()) => Ok(Some(text.trim().to_owned())),
        Ok(_) => Err(PostgresError::PasswordDamaged { path: path.to_path_buf() }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(PostgresError::io("read", path)(error)),
    }
}

fn is_whole(password: &str) -> bool {
    password.len() == 2 * PASSWORD_BYTES && password.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Written aside and renamed: a crash leaves the whole password or none.
fn write_password(layout: &Layout) -> Result<String, PostgresError> {
    let password = random_hex(PASSWORD_BYTES)?;
    let path = layout.password();
    let draft = layout.data_dir().join("password.new");
    write_private(&draft, &password).map_err(PostgresError::io("write", &draft))?;
    fs::rename(&draft, &path).map_err(PostgresError::io("write", &path))?;
    layout.sync()?;
    Ok(password)
}

fn write_private(path: &Path, text: &str) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    writeln!(file, "{text}")?;
    file.sync_all()
}

pub(super) fn random_hex(bytes: usize) -> Result<String, PostgresError> {
    let mut random = vec![0; bytes];
    getrandom::fill(&mut random).map_err(|error| {
        PostgresError::io("read", Path::new("the system's random numbers"))(io::Error::other(error))
    })?;
    Ok(random.iter().fold(String::new(), |mut hex, byte| {
        // Writing to a String cannot fail.
        let _ = write!(hex, "{byte:02x}");
        hex
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_whole_or_not_ours() {
        let password = random_hex(PASSWORD_BYTES).unwrap();
        assert_eq!(password.len(), 48);
        assert!(is_whole(&password));
        assert!(!is_whole(&password[..47]));
        assert!(!is_whole(""));
        assert!(!is_whole(&"g".repeat(48)));
    }
}
