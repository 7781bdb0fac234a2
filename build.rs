//! Migrations are compiled in: a new one must cause a new build. So is the version of the compiler, for `/metrics`.

use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=migrations");
    println!("cargo:rustc-env=WAYBILL_RUSTC={}", rustc_version().unwrap_or_else(|| "unknown".to_owned()));
}

/// Returns the version of the compiler, such as `1.90.0`.
fn rustc_version() -> Option<String> {
    let output = Command::new(std::env::var_os("RUSTC")?).arg("--version").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    text.split(' ').nth(1).map(str::to_owned)
}
