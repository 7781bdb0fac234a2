//! The driver: one chromedriver, which starts the browsers. `scripts/prepare --tests` installs both.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::{Value, json};
use tokio::sync::OnceCell;

use crate::support::{database, until};

static SHARED: OnceCell<Driver> = OnceCell::const_new();

/// A running chromedriver. It ends with its browsers when it is dropped, and with this process at the latest.
pub(crate) struct Driver {
    shell: Child,
    url: String,
    folder: PathBuf,
    browsers: AtomicU32,
}

impl Driver {
    /// Returns the driver of this test process.
    pub(super) async fn shared() -> &'static Self {
        SHARED.get_or_init(|| Self::start(database::folder_of_this_run("waybill-browsers-"))).await
    }

    /// Starts a driver that keeps all its files in a folder.
    pub(crate) async fn start(folder: PathBuf) -> Self {
        // A process with the same pid may have left one.
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("a folder");
        let log = folder.join("log");
        let shell = Self::run(&folder, &log);
        let mut port = None;
        until("chromedriver listens", async || {
            port = port_in(&fs::read_to_string(&log).expect("its log"));
            port.is_some()
        })
        .await;
        let url = format!("http://127.0.0.1:{}", port.expect("a port"));
        Self { shell, url, folder, browsers: AtomicU32::new(0) }
    }

    /// A shell ends the driver and its browsers, which are one process group, when the pipe to this process is
    /// closed in any way.
    fn run(folder: &Path, log: &Path) -> Child {
        let output = File::create(log).expect("a file");
        let mut command = Command::new("sh");
        command.args(["-c", "\"$@\" & read -r _; kill -9 0", "sh"]).arg(program(&["chromedriver"])).arg("--port=0");
        // Whatever a browser keeps beside its profile is kept in this folder, too.
        command.env_clear().envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
        command.env("HOME", folder).env("TMPDIR", folder).env("LC_ALL", "C.UTF-8").env("TZ", "UTC");
        command.stdin(Stdio::piped()).stdout(output.try_clone().expect("a file")).stderr(output);
        command.current_dir("/").process_group(0).spawn().expect("it runs")
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// Returns the capabilities of another browser, with a profile of its own.
    pub(super) fn capabilities(&self) -> Value {
        let number = self.browsers.fetch_add(1, Ordering::Relaxed);
        let profile = self.folder.join(format!("profile-{number}"));
        let mut arguments = vec![
            "--headless=new".to_owned(),
            format!("--user-data-dir={}", profile.display()),
            // No page reaches another machine, whatever it asks for.
            "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1".into(),
            "--disable-background-networking".into(),
            "--disable-component-update".into(),
            // Containers often have a small /dev/shm.
            "--disable-dev-shm-usage".into(),
            "--hide-scrollbars".into(),
            "--lang=en-US".into(),
            "--no-first-run".into(),
            "--window-size=1280,800".into(),
        ];
        if nix::unistd::geteuid().is_root() {
            // Chromium's sandbox refuses root, which is who runs the tests in a container. These browsers open
            // only pages of the tests.
            arguments.push("--no-sandbox".into());
        }
        // Otherwise Chromium begins with its own page, whose requests are among those of the test.
        let first_page = json!({"session": {"restore_on_startup": 4, "startup_urls": ["about:blank"]}});
        let program = program(&["chromium", "google-chrome"]);
        json!({"capabilities": {"alwaysMatch": {
            "goog:chromeOptions": {"binary": program, "args": arguments, "prefs": first_page},
            "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
            // A dialog that a page opens stays open and fails every later command, so it is not overlooked.
            "unhandledPromptBehavior": "ignore",
            "timeouts": {"implicit": 0, "pageLoad": 30_000, "script": 30_000},
        }}})
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        let _ = self.shell.wait();
    }
}

/// Returns the first of these programs that is in `PATH`.
fn program(names: &[&str]) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let mut files = names.iter().flat_map(|name| folders.iter().map(move |folder| folder.join(name)));
    files.find(|file| file.exists()).unwrap_or_else(|| panic!("no {names:?}: scripts/prepare --tests installs it"))
}

/// Returns the port that the driver has chosen, once it has said so.
fn port_in(log: &str) -> Option<u16> {
    let rest = log.split("started successfully on port ").nth(1)?;
    rest.split('.').next()?.parse().ok()
}
