//! The errors of the embedded cluster.
//!
//! The readers of these messages want to run a queue, not to administer a database. Each message
//! names the file or process that causes the problem, and the next command to run.

use std::io;
use std::path::{Path, PathBuf};

use super::find::MINIMUM_MAJOR;

/// The reason why the embedded cluster does not run.
#[derive(Debug, thiserror::Error)]
pub enum PostgresError {
    #[error(
        "no PostgreSQL server of version {MINIMUM_MAJOR} or newer was found. Install one \
         (Debian, Ubuntu: `apt-get install postgresql-{MINIMUM_MAJOR}`; Fedora: `dnf install postgresql-server`; \
         macOS: `brew install postgresql@17`), or set WAYBILL_PG_BIN to the folder that contains `postgres` \
         and `initdb`, or set DATABASE_URL to use a running server. Searched: {searched}"
    )]
    NotFound { searched: String },

    #[error(
        "the data in {} was created by PostgreSQL {major}, and only that version can open it. Install it \
         (Debian, Ubuntu: `apt-get install postgresql-{major}`), or set WAYBILL_PG_BIN to the folder that \
         contains its `postgres`. To move the data to another version: `waybill backup FILE` with the programs of \
         {major}, then `waybill restore FILE --data-dir …` into a new data directory with those of the other one \
         (docs/backup.md). Searched: {searched}",
        cluster.display()
    )]
    MajorMissing { cluster: PathBuf, major: u32, searched: String },

    #[error(
        "backups need PostgreSQL's client programs `pg_dump`, `pg_restore` and `psql` of version {major}, that of the \
         database, and they were not found. Install them (Debian, Ubuntu: `apt-get install postgresql-client-{major}`), \
         or set WAYBILL_PG_BIN to their folder.{}",
        if searched.is_empty() { String::new() } else { format!(" Searched: {searched}") }
    )]
    NoTools { major: u32, searched: String },

    #[error("there is no database in {}. Name the data directory of the server with --data-dir", data_dir.display())]
    NoCluster { data_dir: PathBuf },

    #[error(
        "WAYBILL_PG_BIN points to {}, which cannot be used: {reason}. Set it to the folder that contains \
         `postgres` and `initdb`, or unset it to let Waybill search. If there is none, install one \
         (Debian, Ubuntu: `apt-get install postgresql-{MINIMUM_MAJOR}`)",
        bin_dir.display()
    )]
    BinDir { bin_dir: PathBuf, reason: String },

    #[error(
        "{} is in use by another Waybill server{}. Stop that server first, or choose another data directory",
        data_dir.display(),
        holder(*pid)
    )]
    InUse { data_dir: PathBuf, pid: Option<u32> },

    #[error(
        "a PostgreSQL server{} still runs in {} and did not stop within 10 s. \
         Stop it with `kill -INT {}` and start again",
        holder(*pid),
        cluster.display(),
        pid.map_or_else(|| "<its pid>".to_owned(), |pid| pid.to_string())
    )]
    StillRunning { cluster: PathBuf, pid: Option<u32> },

    #[error(
        "PostgreSQL refuses to run as root, and there is neither a user `postgres` nor a user `nobody` to run \
         it as. Create one (`useradd --system postgres`), or start Waybill as an ordinary user"
    )]
    NoUnprivilegedUser,

    #[error(
        "PostgreSQL refuses to run as root, and Waybill was not allowed to become user `{user}` ({source}). \
         Start Waybill as an ordinary user, or grant it CAP_SETUID and CAP_SETGID"
    )]
    CannotSwitchUser { user: String, source: io::Error },

    #[error(
        "PostgreSQL has to run as user `{user}`, who cannot access {path}. Choose another data directory \
         (/var/lib/waybill is the usual one), or grant access with `chmod o+x {path}`",
        path = directory.display()
    )]
    Unreachable { user: String, directory: PathBuf },

    #[error(
        "{path} belongs to {owner}, but PostgreSQL would run as `{user}` and must own it. Start Waybill \
         as its owner, or change the owner with `chown -R {user} {path}`",
        path = cluster.display()
    )]
    WrongOwner { cluster: PathBuf, owner: String, user: String },

    #[error(
        "{} contains files but is not a PostgreSQL cluster (it has no PG_VERSION). Move it away, or choose another \
         data directory",
        cluster.display()
    )]
    NotACluster { cluster: PathBuf },

    #[error(
        "the cluster {} exists, but its password file {} is missing. Restore that file from a backup; \
         to start with an empty database instead, move the cluster away",
        cluster.display(),
        password.display()
    )]
    PasswordLost { cluster: PathBuf, password: PathBuf },

    #[error(
        "{} does not contain a password written by Waybill. If a cluster exists beside it, restore it from \
         a backup; otherwise move it away, or choose another data directory",
        path.display()
    )]
    PasswordDamaged { path: PathBuf },

    #[error("initdb could not create the cluster ({status}). Its output: {lines}")]
    InitFailed { status: String, lines: String },

    #[error("PostgreSQL did not start ({status}). Its last output: {lines}")]
    StartFailed { status: String, lines: String },

    #[error(
        "PostgreSQL has started, but wrote no output for {seconds} s and accepts no connections. \
         Check the disk, then start again. Its last output: {lines}"
    )]
    NotReady { seconds: u64, lines: String },

    #[error("PostgreSQL (process {pid}) still exists after SIGKILL, most likely because of a stuck disk")]
    NotStopped { pid: u32 },

    #[error("the supervisor thread of PostgreSQL panicked: this is a bug in Waybill; start again")]
    SupervisorLost,

    #[error("cannot {action} {}: {source}", path.display())]
    Io { action: &'static str, path: PathBuf, source: io::Error },
}

impl PostgresError {
    /// Returns a closure for `map_err` that adds the action and the file.
    pub(super) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { action, path: path.to_path_buf(), source }
    }
}

fn holder(pid: Option<u32>) -> String {
    pid.map(|pid| format!(" (process {pid})")).unwrap_or_default()
}
