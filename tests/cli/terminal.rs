//! Commands on a terminal: `waybill top`, and questions. The terminal is a real one, of the kernel's.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex};

use nix::pty::{Winsize, openpty};
use nix::sys::signal::Signal;
use serde_json::json;

use crate::support::process::send;
use crate::support::{App, until};

const TAKE_SCREEN: &str = "\u{1b}[?1049h";
const GIVE_SCREEN_BACK: &str = "\u{1b}[?1049l";

/// A terminal of 80 columns with `waybill` on it.
struct Terminal {
    child: Child,
    keyboard: File,
    /// The program's side, to ask for the settings of the terminal.
    other_side: OwnedFd,
    seen: Arc<Mutex<Vec<u8>>>,
}

impl Terminal {
    fn start(url: &str, arguments: &[&str]) -> Self {
        let size = Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
        let pty = openpty(Some(&size), None).expect("a terminal");
        let side = || pty.slave.try_clone().expect("the terminal");
        // In a session of its own, whose terminal this is: signals of the keyboard and of new sizes arrive.
        let mut command = Command::new("setsid");
        command.args(["--ctty", env!("CARGO_BIN_EXE_waybill")]).args(arguments).env_clear();
        command.envs(std::env::var_os("PATH").map(|path| ("PATH", path))).env("TERM", "xterm").env("WAYBILL_URL", url);
        let child = command.stdin(side()).stdout(side()).stderr(side()).spawn().expect("it runs");
        let seen = Arc::new(Mutex::new(Vec::new()));
        let keyboard = File::from(pty.master);
        let screen = keyboard.try_clone().expect("the terminal");
        std::thread::spawn({
            let seen = seen.clone();
            move || watch(screen, &seen)
        });
        Terminal { child, keyboard, other_side: pty.slave, seen }
    }

    /// Returns everything that was written to the terminal.
    fn seen(&self) -> String {
        String::from_utf8_lossy(&self.seen.lock().expect("no panic")).into_owned()
    }

    async fn until_seen(&self, text: &str) {
        until(&format!("{text:?} is seen"), async || self.seen().contains(text)).await;
    }

    /// Forgets what was seen, so that the next wait is for what is drawn from now on.
    fn forget(&self) {
        self.seen.lock().expect("no panic").clear();
    }

    fn press(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).expect("the terminal");
    }

    /// Runs `stty` on the terminal.
    fn stty(&self, arguments: &[&str]) -> String {
        let side = self.other_side.try_clone().expect("the terminal");
        let output = Command::new("stty").args(arguments).stdin(side).output().expect("stty");
        assert!(output.status.success());
        String::from_utf8(output.stdout).expect("text")
    }

    async fn exit_code(&mut self) -> Option<i32> {
        until("it ends", async || self.child.try_wait().expect("our child").is_some()).await;
        self.child.wait().expect("our child").code()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn watch(mut screen: File, seen: &Mutex<Vec<u8>>) {
    let mut bytes = [0; 4096];
    while let Ok(read @ 1..) = screen.read(&mut bytes) {
        seen.lock().expect("no panic").extend_from_slice(&bytes[..read]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn top_shows_the_server_live_and_gives_the_screen_back() {
    let app = App::start().await;
    app.publish_tagged("images").await;
    for end in ["q", "\u{3}", "SIGTERM"] {
        let mut terminal = Terminal::start(&app.base, &["top", "--interval", "0.2"]);
        let settings = terminal.stty(&["-g"]);
        terminal.until_seen("images").await;
        assert!(terminal.seen().contains(TAKE_SCREEN));
        assert!(!terminal.seen().contains(GIVE_SCREEN_BACK));
        assert_ne!(terminal.stty(&["-g"]), settings);
        match end {
            "SIGTERM" => send(terminal.child.id(), Signal::SIGTERM),
            key => terminal.press(key),
        }
        assert_eq!(terminal.exit_code().await, Some(0), "{end:?}");
        terminal.until_seen(GIVE_SCREEN_BACK).await;
        assert_eq!(terminal.stty(&["-g"]), settings, "{end:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn top_follows_the_size_of_the_terminal_and_says_if_the_server_is_away() {
    let app = App::start().await;
    let mut terminal = Terminal::start(&app.base, &["top", "--interval", "0.2", "--color", "never"]);
    terminal.until_seen("waiting 0").await;
    app.publish(json!({"title": "t", "tags": "a\u{a0}tag"})).await;
    terminal.until_seen("waiting 1").await;
    terminal.stty(&["cols", "40"]);
    terminal.forget();
    terminal.until_seen("waiting 1  running 0  delayed 0\u{1b}").await;
    terminal.until_seen("failed 0  workers 0  dead letters 0\u{1b}").await;
    app.stop().await;
    terminal.until_seen("the server is away; ").await;
    terminal.press("q");
    assert_eq!(terminal.exit_code().await, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_action_on_many_asks_first() {
    let app = App::start().await;
    app.publish_tagged("a").await;
    let cancel = ["events", "cancel", "--tags", "a"];
    let mut terminal = Terminal::start(&app.base, &cancel);
    terminal.until_seen("Cancel 1 event? [y/N] ").await;
    terminal.press("\n");
    assert_eq!(terminal.exit_code().await, Some(1));
    terminal.until_seen("nothing was changed").await;
    assert_eq!(app.status(1).await, "PENDING");
    let mut terminal = Terminal::start(&app.base, &cancel);
    terminal.until_seen("Cancel 1 event? [y/N] ").await;
    terminal.press("y\n");
    assert_eq!(terminal.exit_code().await, Some(0), "{}", terminal.seen());
    assert_eq!(app.status(1).await, "CANCELLED");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_action_on_many_shows_how_much_there_is_to_do() {
    let app = App::start().await;
    let event = json!({"title": "t", "tags": "a"});
    app.post("/events/batch", &json!({"events": vec![event; 4]})).await.expect(201);
    let cancel = ["events", "cancel", "--tags", "a", "--yes", "--per-second", "2"];
    let mut terminal = Terminal::start(&app.base, &cancel);
    terminal.until_seen("0 of about 4 (0 %)").await;
    assert_eq!(terminal.exit_code().await, Some(0), "{}", terminal.seen());
    terminal.until_seen(" is COMPLETED: 4 done, 0 skipped, 0 failed").await;
}

/// The operation is the server's: whoever started it may leave.
#[tokio::test(flavor = "multi_thread")]
async fn ctrl_c_leaves_an_operation_running_and_says_how_to_stop_it() {
    let app = App::start().await;
    let event = json!({"title": "t", "tags": "a"});
    app.post("/events/batch", &json!({"events": vec![event; 1_000]})).await.expect(201);
    let cancel = ["events", "cancel", "--tags", "a", "--yes", "--per-second", "0.1"];
    let mut terminal = Terminal::start(&app.base, &cancel);
    until("it has begun", async || app.count("SELECT count(*) FROM waybill.operations").await == 1).await;
    terminal.until_seen("Cancel ").await;
    terminal.press("\u{3}");
    assert_eq!(terminal.exit_code().await, Some(130), "{}", terminal.seen());
    terminal.until_seen("goes on; stop it with: waybill operations cancel ").await;
    assert_eq!(app.count("SELECT count(*) FROM waybill.operations WHERE status = 'RUNNING'").await, 1);
}
