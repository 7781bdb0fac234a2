//! The Debian package and `make install`.

use std::process::Command;

use nix::unistd::geteuid;

use super::{files, read, root, run};

#[test]
fn the_package_is_installed_serves_and_leaves_nothing_behind() {
    assert!(geteuid().is_root(), "only root can install a package: run this test as root, in a container or in CI");
    let folder = tempfile::tempdir().expect("a folder");
    let built = folder.path().join("built");
    let mut build = Command::new("scripts/deb");
    build.args(["--binary", env!("CARGO_BIN_EXE_waybill"), "--compression", "none", "--output"]).arg(&built);
    let package = String::from_utf8(run(build).stdout).expect("a path");
    let package = package.trim();
    assert!(package.ends_with(&format!("waybill_{}-1_{}.deb", env!("CARGO_PKG_VERSION"), architecture())), "{package}");

    let overlays = tempfile::tempdir().expect("a folder");
    // Everything happens in memory, in copies that only this process sees.
    let mut install = Command::new("unshare");
    install.arg("--mount").arg("tests/packages/deb.sh").arg(overlays.path()).arg(package);
    install.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    let output = String::from_utf8(run(install).stdout).expect("text");
    assert!(output.ends_with("everything was as it should be\n"), "{output}");
}

fn architecture() -> String {
    let output = run({
        let mut dpkg = Command::new("dpkg");
        dpkg.arg("--print-architecture");
        dpkg
    });
    String::from_utf8(output.stdout).expect("a name").trim().to_owned()
}

#[test]
fn an_installation_has_the_program_and_a_unit_that_names_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut install = Command::new("scripts/install");
    install.args(["--binary", env!("CARGO_BIN_EXE_waybill"), "--prefix", "/opt/waybill", "--root"]).arg(folder.path());
    run(install);
    let installed = files(folder.path());
    for wanted in ["opt/waybill/bin/waybill", "opt/waybill/lib/systemd/system/waybill.service"] {
        assert!(installed.iter().any(|file| file == wanted), "{wanted} in {installed:?}");
    }
    assert!(installed.iter().all(|file| file.starts_with("opt/waybill/")), "{installed:?}");
    let unit = folder.path().join("opt/waybill/lib/systemd/system/waybill.service");
    let unit = std::fs::read_to_string(unit).expect("the unit");
    assert!(unit.contains("\nExecStart=/opt/waybill/bin/waybill serve\n"), "{unit}");
}

#[test]
fn the_unit_gives_the_server_more_time_to_stop_than_it_takes() {
    let unit = read("deploy/systemd/waybill.service");
    let seconds: u64 = unit
        .lines()
        .find_map(|line| line.strip_prefix("TimeoutStopSec="))
        .and_then(|value| value.parse().ok())
        .expect("a number");
    // Requests, background services, and the three signals to PostgreSQL: see src/startup.rs and
    // src/postgres/launch.rs.
    let startup = read("src/startup.rs");
    assert!(
        startup.contains("DRAIN_SECONDS: u64 = 5;")
            && startup.contains("BACKGROUND_STOP: Duration = Duration::from_secs(6)")
    );
    assert!(seconds > 5 + 6 + 5 + 7 + 5);
    assert!(root().join("deploy/waybill.env").exists());
}
