//! The embedded cluster: without `DATABASE_URL`, Waybill runs its own PostgreSQL in its data
//! directory. The parts, in the order of use:
//!
//! - `owner`: the user that runs PostgreSQL, which refuses to run as root.
//! - `find`: the binaries. They come from the system; nothing is downloaded.
//! - `layout`, `lock`: the files, and the lock that excludes any other Waybill.
//! - `init`: runs `initdb` once, safe against being killed half-way.
//! - `socket`, `settings`: reachable only through a private socket, tuned for a queue, with every
//!   durability setting left on.
//! - `launch`, `stderr`: one run of the process, and its output.
//! - `supervisor`: the thread that owns the process from the first start to the stop.
//! - `tools`: the client programs of backups.
//!
//! # Failures
//!
//! - *Waybill stops*: SIGINT, a clean shutdown within milliseconds.
//! - *Waybill is killed*: the kernel sends that SIGINT, and the next start waits for the shutdown.
//! - *PostgreSQL is killed*: the supervisor restarts it, and it recovers from its WAL.
//! - *Both are killed, or the power fails*: recovery happens at the next start.
//!
//! Waybill never deletes `postmaster.pid`. It is PostgreSQL's protection against two servers that write to
//! the same files, and PostgreSQL handles stale ones.
//!
//! All functions block; async callers use `spawn_blocking`.

mod error;
mod find;
mod init;
mod launch;
mod layout;
mod lock;
mod owner;
mod settings;
mod socket;
mod stderr;
mod supervisor;
mod tools;
mod url;

use std::fmt;
use std::path::{Path, PathBuf};

pub use error::PostgresError;
use find::{Installation, Search};
use launch::Launch;
use layout::Layout;
pub use layout::default_data_dir;
use lock::DirectoryLock;
use owner::Owner;
use socket::SocketDir;
use supervisor::{Resources, Supervisor};
pub use tools::Tools;

/// The options of a cluster.
#[derive(Debug, Clone)]
pub struct ClusterOptions {
    /// The data directory; created if it does not exist.
    pub data_dir: PathBuf,
    /// The folder of `postgres` and `initdb`; `None` searches for it.
    pub bin_dir: Option<PathBuf>,
    /// Additional `-c name=value` settings; later ones win.
    pub settings: Vec<(String, String)>,
}

impl ClusterOptions {
    /// Returns the default options for a data directory.
    pub fn new(data_dir: impl Into<PathBuf>) -> Self {
        Self { data_dir: data_dir.into(), bin_dir: None, settings: Vec::new() }
    }
}

/// A running PostgreSQL. Dropping the value stops the server.
pub struct Cluster {
    layout: Layout,
    installation: Installation,
    socket_dir: PathBuf,
    password: String,
    supervisor: Supervisor,
}

impl Cluster {
    /// Finds the binaries, locks the directory, creates the cluster if there is none, starts the server, and
    /// returns when it accepts connections.
    pub fn start(options: ClusterOptions) -> Result<Self, PostgresError> {
        let layout = Layout::new(&options.data_dir)?;
        let owner = Owner::of(&layout.cluster())?;
        let installation = find_installation(&options, &layout, &owner)?;
        let program = installation.program("postgres");
        layout.create(&owner, &program)?;
        let lock = DirectoryLock::acquire(&layout.lock(), layout.data_dir())?;
        let password = init::init_cluster(&layout, &installation, &owner)?;
        let sockets = SocketDir::prepare(&layout.run(), &owner, &program)?;
        let socket_dir = sockets.path().to_path_buf();
        let mut settings = settings::supported(&owner, &program, &layout.cluster());
        settings.extend(options.settings);
        let launch = Launch { program, cluster: layout.cluster(), socket_dir: socket_dir.clone(), settings, owner };
        let supervisor = Supervisor::start(launch, Resources { lock, sockets })?;
        Ok(Self { layout, installation, socket_dir, password, supervisor })
    }

    /// Returns the connection URL of a database. It contains the password and must not be logged.
    pub fn url(&self, database: &str) -> String {
        url::socket_url(&self.socket_dir, &self.password, database)
    }

    pub fn data_dir(&self) -> &Path {
        self.layout.data_dir()
    }

    /// Returns the folder of the server binaries.
    pub fn bin_dir(&self) -> &Path {
        &self.installation.bin_dir
    }

    /// Returns the full version, such as `15.18`.
    pub fn version(&self) -> &str {
        &self.installation.version
    }

    /// Returns the pid of the server, or `None` while it is stopped or being restarted.
    pub fn postmaster_pid(&self) -> Option<u32> {
        self.supervisor.pid()
    }

    /// Stops the server and releases the directory. Further calls have no effect.
    pub fn stop(&self) -> Result<(), PostgresError> {
        self.supervisor.stop()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if let Err(error) = self.stop() {
            log::error!("{error}");
        }
    }
}

/// Omits the password.
impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster")
            .field("data_dir", &self.data_dir())
            .field("version", &self.version())
            .field("postmaster_pid", &self.postmaster_pid())
            .finish_non_exhaustive()
    }
}

/// Returns the connection URL of a database in a cluster that another Waybill process is running in `data_dir`.
pub fn running_url(data_dir: &Path, database: &str) -> Result<String, PostgresError> {
    let layout = Layout::new(data_dir)?;
    let password = init::read_password(&layout.password())?;
    let password = password
        .ok_or_else(|| PostgresError::PasswordLost { cluster: layout.cluster(), password: layout.password() })?;
    Ok(url::socket_url(&socket::socket_dir_in_use(&layout.run()), &password, database))
}

/// Returns whether a data directory contains a cluster.
pub fn has_cluster(data_dir: &Path) -> Result<bool, PostgresError> {
    Ok(Layout::new(data_dir)?.cluster_major()?.is_some())
}

fn find_installation(options: &ClusterOptions, layout: &Layout, owner: &Owner) -> Result<Installation, PostgresError> {
    let cluster = layout.cluster();
    let major = layout.cluster_major()?;
    // Absolute, because the programs run in another working directory.
    let bin_dir = options.bin_dir.as_ref().map(std::path::absolute).transpose();
    let bin_dir = bin_dir.map_err(PostgresError::io("resolve", Path::new("WAYBILL_PG_BIN")))?;
    Search { owner, bin_dir: bin_dir.as_deref(), cluster: major.map(|major| (cluster.as_path(), major)) }.find()
}
