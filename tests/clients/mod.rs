//! Clients that are generated from `openapi.yaml`, compiled strictly, and used for an event's whole life.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::support::App;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients")
}

/// Runs a program in the folder of the clients, and returns what it printed.
#[track_caller]
fn run(program: &str, arguments: &[&str], variables: &[(&str, &str)]) -> String {
    let mut command = Command::new(folder().join(program));
    // The generator formats its code with a program that it looks for in PATH.
    let path = format!("{}:{}", folder().join(".venv/bin").display(), std::env::var("PATH").unwrap_or_default());
    command.args(arguments).envs(variables.iter().copied()).env("PATH", path);
    let output = command.current_dir(folder()).stdin(Stdio::null()).output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error} (scripts/prepare --tests installs it)"));
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{program} {arguments:?}: {}\n{out}\n{err}", output.status);
    out.into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_generated_python_client_is_fully_typed_and_lives_an_events_life() {
    let sources = ("MYPYPATH", ".generated/python");
    let generated = run(
        ".venv/bin/openapi-python-client",
        &[
            "generate",
            "--path=../../openapi.yaml",
            "--config=python.yaml",
            "--overwrite",
            "--output-path=.generated/python",
        ],
        &[],
    );
    // It omits what it does not understand, with a warning.
    assert!(!generated.contains("WARNING"), "{generated}");
    let strict = ["--strict", "--cache-dir=.generated/mypy", "life.py", ".generated/python/waybill_client"];
    run(".venv/bin/mypy", &strict, &[sources]);
    let app = App::start().await;
    let printed = run(".venv/bin/python", &["life.py", &app.base], &[("PYTHONPATH", ".generated/python")]);
    assert_eq!(printed, "done\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_generated_typescript_client_compiles_strictly_and_lives_an_events_life() {
    run("node_modules/.bin/openapi-typescript", &["../../openapi.yaml", "--output", ".generated/api.ts"], &[]);
    run("node_modules/.bin/tsc", &["--project", "."], &[]);
    let app = App::start().await;
    let printed = run("/usr/bin/env", &["node", ".generated/typescript/life.js", &app.base], &[]);
    assert_eq!(printed, "done\n");
}
