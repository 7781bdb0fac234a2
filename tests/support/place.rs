//! Data directories for tests that need their own PostgreSQL.

use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use tempfile::TempDir;
use waybill::postgres::{Cluster, ClusterOptions};

use super::database;

/// A temporary data directory that every user can reach. It is removed with the test.
pub(crate) struct ClusterDir {
    root: TempDir,
}

impl ClusterDir {
    /// Creates an empty directory.
    pub(crate) fn new() -> Self {
        let root = tempfile::tempdir().expect("a folder");
        fs::set_permissions(root.path(), Permissions::from_mode(0o755)).expect("a folder of ours");
        Self { root }
    }

    /// Creates a directory with a cluster in it that has been started and stopped before.
    pub(crate) fn with_cluster() -> Self {
        let cluster_dir = Self::new();
        let copied = Command::new("cp").arg("-a").arg(template()).arg(cluster_dir.data_dir()).status();
        assert!(copied.expect("cp runs").success());
        cluster_dir
    }

    pub(crate) fn root(&self) -> &Path {
        self.root.path()
    }

    pub(crate) fn data_dir(&self) -> PathBuf {
        self.root.path().join("data")
    }

    /// Starts the cluster in this process.
    pub(crate) fn start(&self) -> Cluster {
        Cluster::start(ClusterOptions::new(self.data_dir())).expect("the cluster starts")
    }

    /// Returns the URL of its database, whichever process runs it.
    pub(crate) fn url(&self) -> String {
        let password = fs::read_to_string(self.data_dir().join("password")).expect("a password");
        let socket = self.data_dir().join("run").display().to_string().replace('/', "%2F");
        format!("postgres://waybill:{}@{socket}:5432/postgres", password.trim())
    }

    /// Returns the pid under which PostgreSQL last ran.
    pub(crate) fn postmaster(&self) -> Option<u32> {
        let text = fs::read_to_string(self.data_dir().join("postgres/postmaster.pid")).ok()?;
        text.lines().next()?.trim().parse().ok()
    }
}

/// Returns a cluster that is created once and copied for each test. It is not durable: no test
/// switches the machine off.
fn template() -> &'static Path {
    static TEMPLATE: OnceLock<PathBuf> = OnceLock::new();
    TEMPLATE.get_or_init(|| {
        let path = database::directory().join("template");
        drop(Cluster::start(ClusterOptions::new(&path)).expect("the cluster starts"));
        let mut file = fs::OpenOptions::new().append(true).open(path.join("postgres/postgresql.conf"));
        let written = file.as_mut().map(|file| file.write_all(b"fsync = off\nfull_page_writes = off\n"));
        written.expect("the cluster's settings").expect("the cluster's settings");
        path
    })
}
