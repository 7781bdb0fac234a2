//! The file: who may read it, and what is refused before a database is touched.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::{Place, refused, run, summary_of};
use crate::support::process::waybill;
use crate::support::{App, ClusterDir, database};

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_or_foreign_file_is_refused_and_the_target_stays_as_it_is() {
    let folder = tempfile::tempdir().expect("a folder");
    let (whole, other) = (folder.path().join("whole"), folder.path().join("other"));
    let app = App::start().await;
    app.publish_tagged("a").await;
    summary_of(Place::Url(&app.url).backup(&whole)).await;
    let bytes = fs::read(&whole).expect("a backup");
    let target = ClusterDir::new();
    let mut flipped = bytes.clone();
    flipped[bytes.len() / 2] ^= 1;
    let newer = [b"waybill backup 2".as_slice(), &bytes[16..]].concat();
    let cases: [(&[u8], &str); 6] = [
        (&bytes[..bytes.len() - 1], "truncated"),
        (&bytes[..20_000], "truncated"),
        (&bytes[..100], "truncated"),
        (&flipped, "damaged"),
        (&bytes[16_384..], "not a backup"),
        (&newer, "another format"),
    ];
    for (content, word) in cases {
        fs::write(&other, content).expect("a file");
        refused(Place::Embedded(&target).restore(&other), &[word]).await;
        let mut verify = waybill(&["backup", "verify"]);
        verify.arg(&other);
        refused(verify, &[word]).await;
    }
    assert!(!target.data_dir().exists(), "a refusal creates no database");
    let mut verify = waybill(&["backup", "verify", "--json"]);
    // A setting of the database that happens to be in the environment does not matter.
    verify.arg(&whole).env("WAYBILL_DATA_DIR", "/nowhere");
    assert_eq!(summary_of(verify).await["tables"]["events"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_is_for_its_owner_only_and_replaces_no_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let app = App::start().await;
    let file = folder.path().join("a.backup");
    summary_of(Place::Url(&app.url).backup(&file)).await;
    assert_eq!(fs::metadata(&file).expect("a file").permissions().mode() & 0o777, 0o600);
    let before = fs::read(&file).expect("a backup");
    refused(Place::Url(&app.url).backup(&file), &["exists"]).await;
    assert_eq!(fs::read(&file).expect("a backup"), before);

    // In a folder, it is named by the time.
    let summary = summary_of(Place::Url(&app.url).backup(folder.path())).await;
    let named = summary["file"].as_str().expect("a name");
    assert!(named.contains("/waybill-2") && named.ends_with("Z.backup"), "{named}");
    assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 2, "no other file is left");
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_written_if_there_is_no_database() {
    let nowhere = ClusterDir::new();
    let file = nowhere.root().join("a.backup");
    refused(Place::Embedded(&nowhere).backup(&file), &["there is no database in"]).await;
    let empty = database::empty().await;
    refused(Place::Url(&empty).backup(&file), &["no data of Waybill"]).await;
    assert_eq!(fs::read_dir(nowhere.root()).expect("a folder").count(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_json_the_summary_is_a_line_for_people_and_progress_goes_elsewhere() {
    let folder = tempfile::tempdir().expect("a folder");
    let app = App::start().await;
    let mut command = waybill(&["backup", "--database-url", &app.url]);
    command.arg(folder.path().join("a.backup"));
    let output = run(command).await;
    let stdout = String::from_utf8(output.stdout).expect("text");
    assert!(output.status.success() && stdout.starts_with("wrote ") && stdout.lines().count() == 1, "{stdout}");
}
