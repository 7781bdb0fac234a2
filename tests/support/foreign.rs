//! A PostgreSQL that Waybill did not start, configured as other people configure theirs.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use nix::sys::signal::Signal;
use nix::unistd::geteuid;
use waybill::store::connection::connect::connect;

use super::process::send;
use super::{ClusterDir, database, until};

/// A PostgreSQL that runs until it is dropped.
pub(crate) struct ForeignPostgres {
    child: Child,
    cluster_dir: ClusterDir,
    port: u16,
}

/// The port in the name of the socket, unless a test chooses another.
const USUAL_PORT: u16 = 5432;

impl ForeignPostgres {
    /// Starts it with these settings and environment variables, reachable only through its socket.
    pub(crate) async fn start(cluster_dir: ClusterDir, settings: &[&str], variables: &[(&str, &str)]) -> Self {
        let settings = [settings, &["listen_addresses="]].concat();
        Self::start_at(cluster_dir, USUAL_PORT, &settings, variables).await
    }

    /// Starts it at this port.
    pub(crate) async fn start_at(
        cluster_dir: ClusterDir,
        port: u16,
        settings: &[&str],
        variables: &[(&str, &str)],
    ) -> Self {
        let cluster = cluster_of(&cluster_dir);
        let mut command = Command::new(database::cluster().bin_dir().join("postgres"));
        command.arg("-D").arg(&cluster).arg("-k").arg(cluster_dir.data_dir().join("run"));
        command.arg("-p").arg(port.to_string()).args(settings.iter().flat_map(|setting| ["-c", *setting]));
        command.env_clear().envs(variables.iter().copied()).current_dir("/");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        if let Some((uid, gid)) = owner_of(&cluster) {
            command.uid(uid).gid(gid);
        }
        let foreign = Self { child: command.spawn().expect("it runs"), cluster_dir, port };
        let url = foreign.url();
        until("it answers", async || connect(&url, "").await.is_ok()).await;
        foreign
    }

    /// Returns its URL through the socket.
    pub(crate) fn url(&self) -> String {
        self.cluster_dir.url().replace(&format!(":{USUAL_PORT}/"), &format!(":{}/", self.port))
    }

    /// Returns its URL through TCP.
    pub(crate) fn url_by_tcp(&self, host: &str) -> String {
        let (before, rest) =
            self.cluster_dir.url().split_once('@').map(|(a, b)| (a.to_owned(), b.to_owned())).expect("a user");
        let database = rest.rsplit_once('/').expect("a database").1;
        format!("{before}@{host}:{}/{database}", self.port)
    }
}

impl Drop for ForeignPostgres {
    fn drop(&mut self) {
        send(self.child.id(), Signal::SIGINT);
        let _ = self.child.wait();
    }
}

fn cluster_of(cluster_dir: &ClusterDir) -> PathBuf {
    cluster_dir.data_dir().join("postgres")
}

/// Returns the user and group that must run a cluster, if the tests run as root.
fn owner_of(cluster: &Path) -> Option<(u32, u32)> {
    let owner = fs::metadata(cluster).expect("a cluster");
    geteuid().is_root().then_some((owner.uid(), owner.gid()))
}

/// Writes a file into a cluster, readable only by its owner.
pub(crate) fn put_file(cluster_dir: &ClusterDir, name: &str, text: &str) {
    use std::os::unix::fs::PermissionsExt;
    let cluster = cluster_of(cluster_dir);
    let file = cluster.join(name);
    fs::write(&file, text).expect("we may");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("we may");
    if let Some((uid, gid)) = owner_of(&cluster) {
        std::os::unix::fs::chown(&file, Some(uid), Some(gid)).expect("we are root");
    }
}
