//! What can go wrong with the embedded cluster.
//!
//! Whoever reads these messages wanted to run a queue, not to administer a
//! database: each one names the file or the process in the way and the next
//! thing to type.

use std::io;
use std::path::{Path, PathBuf};

use super::find::MINIMUM_MAJOR;

/// Why the embedded cluster does not run.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each variant is its message")]
pub enum PostgresError {
    #[error(
        "no PostgreSQL server of version {MINIMUM_MAJOR} or newer was found. Install one \
         (Debian, Ubuntu: `apt-get install postgresql-{MINIMUM_MAJOR}`; Fedora: `dnf install postgresql-server`; \
         macOS: `brew install postgresql@17`), or set WAYBILL_PG_BIN to the folder that holds `postgres` and \
         `initdb`, or set DATABASE_URL to use a server that runs already. Looked at: {looked_at}"
    )]
    NotFound { looked_at: String },

    #[error(
        "the data in {} was made by PostgreSQL {major}, and only that version can open it. Install it \
         (Debian, Ubuntu: `apt-get install postgresql-{major}`), or set WAYBILL_PG_BIN to the folder that \
         holds its `postgres`. Looked at: {looked_at}",
        cluster.display()
    )]
    MajorMissing { cluster: PathBuf, major: u32, looked_at: String },

    #[error(
        "WAYBILL_PG_BIN points to {}, which cannot be used: {reason}. Set it to the folder that holds \
         `postgres` and `initdb`, or unset it to let Waybill search. If there is none, install one \
         (Debian, Ubuntu: `apt-get install postgresql-{MINIMUM_MAJOR}`)",
        bin_dir.display()
    )]
    BinDir { bin_dir: PathBuf, reason: String },

    #[error(
        "{} is in use by another Waybill server{}. Stop that one first, or choose another data directory",
        data_dir.display(),
        holder(*pid)
    )]
    InUse { data_dir: PathBuf, pid: Option<u32> },

    #[error(
        "a PostgreSQL server{} still runs in {} and did not stop by itself within 10 s. \
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
        "PostgreSQL has to run as user `{user}`, who may not enter {place}. Choose another data directory \
         (/var/lib/waybill is the usual one), or open this one with `chmod o+x {place}`",
        place = directory.display()
    )]
    Unreachable { user: String, directory: PathBuf },

    #[error(
        "{place} belongs to {owner}, but PostgreSQL would run as `{user}` and insists on owning it. Start Waybill \
         as its owner, or hand it over with `chown -R {user} {place}`",
        place = cluster.display()
    )]
    WrongOwner { cluster: PathBuf, owner: String, user: String },

    #[error(
        "{} holds files that are no PostgreSQL cluster (it has no PG_VERSION). Move it away, or choose another \
         data directory",
        cluster.display()
    )]
    NotACluster { cluster: PathBuf },

    #[error(
        "the cluster {} exists, but its password file {} is missing. Restore that file from a backup; \
         to begin with an empty database instead, move the cluster away",
        cluster.display(),
        password.display()
    )]
    PasswordLost { cluster: PathBuf, password: PathBuf },

    #[error(
        "{} holds something else than a password that Waybill wrote. If a cluster stands beside it, restore it from \
         a backup; otherwise move it away, or choose another data directory",
        path.display()
    )]
    PasswordDamaged { path: PathBuf },

    #[error("initdb could not create the cluster ({status}). It said: {lines}")]
    InitFailed { status: String, lines: String },

    #[error("PostgreSQL did not start ({status}). Its last lines: {lines}")]
    StartFailed { status: String, lines: String },

    #[error(
        "PostgreSQL has started but said nothing for {seconds} s and accepts no connections. \
         Check the disk, then start again. Its last lines: {lines}"
    )]
    NotReady { seconds: u64, lines: String },

    #[error(
        "PostgreSQL (process {pid}) is still there after SIGKILL: the kernel holds it, most likely on a stuck disk"
    )]
    NotStopped { pid: u32 },

    #[error("the thread that keeps PostgreSQL running has ended by a panic: this is a bug in Waybill; start again")]
    SupervisorLost,

    #[error("cannot {action} {}: {source}", path.display())]
    Io { action: &'static str, path: PathBuf, source: io::Error },
}

impl PostgresError {
    /// For `map_err`: says what was being done to which file.
    pub(super) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { action, path: path.to_path_buf(), source }
    }
}

fn holder(pid: Option<u32>) -> String {
    pid.map(|pid| format!(" (process {pid})")).unwrap_or_default()
}
