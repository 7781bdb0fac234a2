//! The container image. No engine runs here: its files are read, and its scripts are run as they are.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::{Child, Command, Stdio};

use nix::sys::signal::Signal;

use super::{read, root};
use crate::support::ClusterDir;
use crate::support::process::send;

#[test]
fn every_file_that_the_image_copies_exists_and_is_not_ignored() {
    let dockerfile = read("Dockerfile");
    let ignored = read(".dockerignore");
    let copies =
        dockerfile.lines().filter_map(|line| line.strip_prefix("COPY ")).filter(|rest| !rest.starts_with("--"));
    let mut sources = 0;
    for copy in copies {
        let words: Vec<&str> = copy.split_whitespace().collect();
        for source in &words[..words.len() - 1] {
            assert!(root().join(source).exists(), "{source}");
            let is_sent =
                ignored.lines().filter_map(|line| line.strip_prefix('!')).any(|kept| source.starts_with(kept));
            assert!(is_sent, "{source} is in .dockerignore");
            sources += 1;
        }
    }
    assert!(sources >= 7, "{dockerfile}");
    assert!(dockerfile.contains("\nUSER waybill\n") && dockerfile.contains("\nVOLUME /var/lib/waybill\n"));
    assert!(dockerfile.contains("\nHEALTHCHECK ") && dockerfile.contains("WAYBILL_BIND=0.0.0.0:8080"));
    let rust = read("Cargo.toml").lines().find_map(|line| line.strip_prefix("rust-version = \"")).map(str::to_owned);
    let rust = rust.expect("a version").trim_end_matches('"').to_owned();
    assert!(dockerfile.contains(&format!("FROM rust:{rust}-")), "{rust}");
}

#[test]
fn compose_waits_for_a_healthy_database_and_needs_a_password() {
    let text = read("compose.yaml");
    let compose: serde_json::Value = serde_saphyr::from_str(&text).expect("YAML");
    let (waybill, db) = (&compose["services"]["waybill"], &compose["services"]["db"]);
    assert_eq!(waybill["depends_on"]["db"]["condition"], "service_healthy");
    assert_eq!(db["healthcheck"]["test"][1], "pg_isready");
    assert_eq!(waybill["read_only"], true);
    let volumes = compose["volumes"].as_object().expect("volumes");
    for service in [waybill, db] {
        let mounted = service["volumes"][0].as_str().expect("a volume").split(':').next().expect("a name");
        assert!(volumes.contains_key(mounted), "{mounted}");
    }
    assert!(text.contains("${POSTGRES_PASSWORD:?"));
    // `waybill backup` needs the programs of the same major version.
    let image = db["image"].as_str().expect("an image");
    let major = image.trim_start_matches("postgres:").split('-').next().expect("a version");
    assert!(read("Dockerfile").contains(&format!("postgresql-{major}")), "{image}");
}

/// Starts the entrypoint with a data directory, and returns it with the address that it serves.
fn start(place: &ClusterDir, port: u16, arguments: &[&str]) -> (Child, String) {
    let programs = place.root().join("bin");
    if !programs.exists() {
        fs::create_dir(&programs).expect("a folder");
        symlink(env!("CARGO_BIN_EXE_waybill"), programs.join("waybill")).expect("a link");
    }
    let mut command = Command::new(root().join("deploy/docker/entrypoint"));
    command.args(arguments).env_clear().env("PATH", format!("{}:/usr/bin:/bin", programs.display()));
    command.env("WAYBILL_DATA_DIR", place.data_dir()).env("WAYBILL_BIND", format!("0.0.0.0:{port}"));
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("text");
    let base = line.trim().strip_prefix("waybill is listening on ").map(str::to_owned);
    let base = base.unwrap_or_else(|| panic!("{line:?}: {:?}", child.wait_with_output_text()));
    (child, base.replace("0.0.0.0", "127.0.0.1"))
}

trait OutputText {
    fn wait_with_output_text(&mut self) -> String;
}

impl OutputText for Child {
    fn wait_with_output_text(&mut self) -> String {
        let mut text = String::new();
        let mut stderr = self.stderr.take().expect("a pipe");
        std::io::Read::read_to_string(&mut stderr, &mut text).expect("text");
        text
    }
}

fn stop(mut child: Child) -> String {
    send(child.id(), Signal::SIGTERM);
    let text = child.wait_with_output_text();
    assert!(child.wait().expect("our child").success(), "{text}");
    text
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_start_makes_a_key_for_its_owner_and_later_ones_make_none() {
    let place = ClusterDir::with_cluster();
    let file = place.data_dir().join("first-key");
    let client = crate::support::http_client();
    let get = async |url: String, key: Option<&str>| {
        let request = client.get(url);
        let request = match key {
            Some(key) => request.bearer_auth(key),
            None => request,
        };
        request.send().await.expect("a response").status().as_u16()
    };
    let (child, base) = tokio::task::block_in_place(|| start(&place, 0, &["serve"]));
    let key = fs::read_to_string(&file).expect("a key");
    assert_eq!(fs::metadata(&file).expect("a file").permissions().mode() & 0o777, 0o600);
    assert!(key.starts_with("wb_") && key.lines().count() == 1);
    assert_eq!(get(format!("{base}/events"), None).await, 401);
    assert_eq!(get(format!("{base}/events"), Some(key.trim())).await, 200);
    let healthy = |base: &str| {
        let port = base.rsplit_once(':').expect("a port").1.to_owned();
        let mut check = Command::new(root().join("deploy/docker/healthcheck"));
        check.env("WAYBILL_BIND", format!("0.0.0.0:{port}")).status().expect("it runs").success()
    };
    assert!(tokio::task::block_in_place(|| healthy(&base)));
    let said = tokio::task::block_in_place(|| stop(child));
    assert!(said.contains("first-key") && !said.contains(key.trim()), "the key is not in the log: {said}");
    assert!(!tokio::task::block_in_place(|| healthy(&base)));

    // Neither the mark nor the file is needed to know that there is a key.
    fs::remove_file(&file).expect("the key");
    fs::remove_file(place.data_dir().join(".first-key-made")).expect("the mark");
    let (child, base) = tokio::task::block_in_place(|| start(&place, 0, &[]));
    assert!(!file.exists());
    assert_eq!(get(format!("{base}/events"), Some(key.trim())).await, 200);
    tokio::task::block_in_place(|| stop(child));
}

#[tokio::test(flavor = "multi_thread")]
async fn with_open_the_entrypoint_makes_no_key_and_other_commands_are_passed_on() {
    let place = ClusterDir::with_cluster();
    let (child, _) = tokio::task::block_in_place(|| start(&place, 0, &["serve", "--open"]));
    assert!(!place.data_dir().join("first-key").exists());
    tokio::task::block_in_place(|| stop(child));
    let mut version = Command::new(root().join("deploy/docker/entrypoint"));
    version.arg("--version").env("PATH", format!("{}:/usr/bin:/bin", place.root().join("bin").display()));
    let output = version.output().expect("it runs");
    assert_eq!(String::from_utf8_lossy(&output.stdout), format!("waybill {}\n", env!("CARGO_PKG_VERSION")));
}
