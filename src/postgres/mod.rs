//! The embedded cluster: a PostgreSQL of our own, for whoever has none.
//!
//! With no `DATABASE_URL` the server runs its own PostgreSQL out of its data
//! directory. The cast, in order of appearance:
//!
//! - `owner`: as whom it runs. PostgreSQL refuses root.
//! - `find`: which binaries. Those of the system; nothing is downloaded.
//! - `layout`, `lock`: where things lie, and the proof that no other Waybill
//!   is at work there.
//! - `init`: `initdb`, once, safe against being killed in the middle.
//! - `socket`, `settings`: reachable through a private socket only, tuned
//!   for a queue, with every durability setting left on.
//! - `launch`, `stderr`: one run of the process, and what it says.
//! - `supervisor`: the thread that owns the process from first start to stop.
//!
//! # The plot: who dies, and what happens
//!
//! *We stop*: SIGINT, a clean shutdown of some milliseconds. *We are killed*: the
//! kernel sends that SIGINT for us; the next start waits until it is done. *The
//! server is killed*: it is started again and recovers from its log. *Both are
//! killed, or the power fails*: the same at the next start. `postmaster.pid` is
//! never deleted by us in any of these: it is PostgreSQL's proof that nobody
//! writes to the same files, and it knows how to read its own.
//!
//! Everything here blocks; async callers use `spawn_blocking`.

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

/// What to run, and where.
#[derive(Debug, Clone)]
pub struct ClusterOptions {
    /// Where everything lies; made if it is not there.
    pub data_dir: PathBuf,
    /// The folder of `postgres` and `initdb`; searched for when absent.
    pub bin_dir: Option<PathBuf>,
    /// Extra `-c name=value`; later ones win.
    pub settings: Vec<(String, String)>,
}

impl ClusterOptions {
    /// The defaults, in this directory.
    pub fn new(data_dir: impl Into<PathBuf>) -> Self {
        Self { data_dir: data_dir.into(), bin_dir: None, settings: Vec::new() }
    }
}

/// A running PostgreSQL. Dropping it stops the server.
pub struct Cluster {
    layout: Layout,
    installation: Installation,
    socket_dir: PathBuf,
    password: String,
    supervisor: Supervisor,
}

impl Cluster {
    /// Finds the binaries, takes the directory, makes the cluster if there is
    /// none, starts the server and returns when it accepts connections.
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

    /// For any client; contains the password, so not for the log.
    pub fn url(&self, database: &str) -> String {
        url::socket_url(&self.socket_dir, &self.password, database)
    }

    /// Where everything lies.
    pub fn data_dir(&self) -> &Path {
        self.layout.data_dir()
    }

    /// Whose binaries run.
    pub fn bin_dir(&self) -> &Path {
        &self.installation.bin_dir
    }

    /// As PostgreSQL writes it: `15.18`.
    pub fn version(&self) -> &str {
        &self.installation.version
    }

    /// `None` while the server is down: stopped, or between death and restart.
    pub fn postmaster_pid(&self) -> Option<u32> {
        self.supervisor.pid()
    }

    /// Stops the server and frees the directory; a second call does nothing.
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

/// Without the password.
impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster")
            .field("data_dir", &self.data_dir())
            .field("version", &self.version())
            .field("postmaster_pid", &self.postmaster_pid())
            .finish_non_exhaustive()
    }
}

fn find_installation(options: &ClusterOptions, layout: &Layout, owner: &Owner) -> Result<Installation, PostgresError> {
    let cluster = layout.cluster();
    let major = layout.cluster_major()?;
    // Made absolute: the programs are run from another working directory.
    let named = options.bin_dir.as_ref().map(std::path::absolute).transpose();
    let bin_dir = named.map_err(PostgresError::io("resolve", Path::new("WAYBILL_PG_BIN")))?;
    Search { owner, bin_dir: bin_dir.as_deref(), cluster: major.map(|major| (cluster.as_path(), major)) }.find()
}
