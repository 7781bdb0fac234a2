//! Creates the cluster on the first start.
//!
//! The order of steps is safe against a crash at any point. The password is written before the
//! cluster gets its final name, and `initdb` works in `postgres.init`, which is renamed to `postgres`
//! when complete. Therefore `postgres/` is either absent or complete, and `postgres.init` can always
//! be deleted.

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

/// The database role of the server.
pub(super) const ROLE: &str = "waybill";

const PASSWORD_BYTES: usize = 24;

/// Creates the cluster unless it exists, and returns the password.
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
    // A password without a cluster is left from an interrupted start. It is safe to use.
    let password = match known {
        Some(password) => password,
        None => write_password(layout)?,
    };
    // initdb reads the file as PostgreSQL's user.
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
    // initdb has synced the files; the rename publishes the complete cluster atomically.
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
        // Byte order: an upgrade of the system's locales cannot corrupt indexes.
        .arg("--no-locale")
        // Corruption by the disk is detected at the first read, not years later in a backup.
        .arg("--data-checksums");
    // SIGKILL: initdb must not keep writing while the next start cleans up.
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

/// Removes a directory. Retries for 2 s because a child of a killed `initdb` may still add files.
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

/// Returns the password, or `None` if there is no file. A file with other content is never overwritten:
/// Waybill writes the password atomically, so other content was not written by Waybill.
pub(super) fn read_password(path: &Path) -> Result<Option<String>, PostgresError> {
    match fs::read_to_string(path) {
        Ok(text) if is_password(text.trim()) => Ok(Some(text.trim().to_owned())),
        Ok(_) => Err(PostgresError::PasswordDamaged { path: path.to_path_buf() }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(PostgresError::io("read", path)(error)),
    }
}

fn is_password(password: &str) -> bool {
    password.len() == 2 * PASSWORD_BYTES && password.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Writes the password to a temporary file and renames it, so a crash leaves a complete password or none.
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
    fn only_a_complete_password_is_accepted() {
        let password = random_hex(PASSWORD_BYTES).unwrap();
        assert_eq!(password.len(), 48);
        assert!(is_password(&password));
        assert!(!is_password(&password[..47]));
        assert!(!is_password(""));
        assert!(!is_password(&"g".repeat(48)));
    }
}
