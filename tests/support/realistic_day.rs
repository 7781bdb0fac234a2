//! A server full of data: `examples/a-realistic-day`.

use std::process::{Command, Stdio};

use super::App;

/// Fills a server, with an admin key if it requires one. Returns what the program printed.
pub(crate) async fn fill(app: &App, key: Option<&str>) -> String {
    let mut command = Command::new("examples/a-realistic-day");
    command.current_dir(env!("CARGO_MANIFEST_DIR")).env("WAYBILL_URL", &app.base).env_remove("WAYBILL_KEY");
    command.envs(key.map(|key| ("WAYBILL_KEY", key))).stdin(Stdio::null());
    let running = tokio::task::spawn_blocking(move || command.output());
    let output = running.await.expect("no panic").expect("it runs");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}: {out}\n{err}", output.status);
    out.into_owned()
}
