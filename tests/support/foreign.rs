//! A PostgreSQL that Waybill did not start, set up as others set up theirs.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use nix::sys::signal::Signal;
use nix::unistd::geteuid;
use waybill::store::connection::connect::connect;

use super::process::send;
use super::{Place, database, until};

/// Runs until it is dropped.
pub struct ForeignPostgres {
    child: Child,
    place: Place,
    port: u16,
}

/// The port that names the socket, if nobody says otherwise.
const USUAL_PORT: u16 = 5432;

impl ForeignPostgres {
    /// Starts it with these settings and variables, reachable by its socket only.
    pub async fn start(place: Place, settings: &[&str], variables: &[(&str, &str)]) -> Self {
        let settings = [settings, &["listen_addresses="]].concat();
        Self::start_at(place, USUAL_PORT, &settings, variables).await
    }

    /// The same, at a port.
    pub async fn start_at(place: Place, port: u16, settings: &[&str], variables: &[(&str, &str)]) -> Self {
        let cluster = cluster_of(&place);
        let mut command = Command::new(database::cluster().bin_dir().join("postgres"));
        command.arg("-D").arg(&cluster).arg("-k").arg(place.data_dir().join("run"));
        command.arg("-p").arg(port.to_string()).args(settings.iter().flat_map(|setting| ["-c", *setting]));
        command.env_clear().envs(variables.iter().copied()).current_dir("/");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        if let Some((uid, gid)) = owner_of(&cluster) {
            command.uid(uid).gid(gid);
        }
        let foreign = Self { child: command.spawn().expect("it runs"), place, port };
        let url = foreign.url();
        until("it answers", async || connect(&url, "").await.is_ok()).await;
        foreign
    }

    /// Its address, by its socket.
    pub fn url(&self) -> String {
        self.place.url().replace(&format!(":{USUAL_PORT}/"), &format!(":{}/", self.port))
    }

    /// Its address, by TCP.
    pub fn url_by_tcp(&self, host: &str) -> String {
        let (before, rest) =
            self.place.url().split_once('@').map(|(a, b)| (a.to_owned(), b.to_owned())).expect("a user");
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

fn cluster_of(place: &Place) -> PathBuf {
    place.data_dir().join("postgres")
}

/// Whom a cluster must be run as, where that is somebody else.
fn owner_of(cluster: &Path) -> Option<(u32, u32)> {
    let owner = fs::metadata(cluster).expect("a cluster");
    geteuid().is_root().then_some((owner.uid(), owner.gid()))
}

/// Puts a file into a cluster, for its owner's eyes only.
pub fn put_file(place: &Place, name: &str, text: &str) {
    use std::os::unix::fs::PermissionsExt;
    let cluster = cluster_of(place);
    let file = cluster.join(name);
    fs::write(&file, text).expect("we may");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("we may");
    if let Some((uid, gid)) = owner_of(&cluster) {
        std::os::unix::fs::chown(&file, Some(uid), Some(gid)).expect("we are root");
    }
}
