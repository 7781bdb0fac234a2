//! Settings with which the server does not start.

use super::{Files, Identity};
use crate::support::process::{Process, waybill};

/// Returns what a server prints that refuses to start with these flags.
fn refusal(flags: &[String]) -> String {
    let mut command = waybill(&["serve", "--bind", "127.0.0.1:0"]);
    // The database is not reached: the certificate is loaded first.
    command.args(flags).env("DATABASE_URL", "postgres://nobody@127.0.0.1:1/none");
    match Process::spawn(command) {
        Ok(_) => panic!("it starts with {flags:?}"),
        Err(ended) => {
            assert!(!ended.status.success());
            ended.stderr
        }
    }
}

#[test]
fn one_of_the_two_files_is_not_enough() {
    let files = Files::with(&Identity::new());
    let flags = files.flags();
    assert!(refusal(&flags[..1]).contains("--tls-key"), "{}", refusal(&flags[..1]));
    assert!(refusal(&flags[1..2]).contains("--tls-cert"), "{}", refusal(&flags[1..2]));
}

#[test]
fn files_that_cannot_be_used_are_named() {
    let files = Files::with(&Identity::new());
    let (certificate, key) = (files.certificate(), files.key());
    let names = |text: &str, file: &std::path::Path| text.contains(&file.display().to_string());
    for bad in ["", "no PEM at all", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
        files.install(&Identity::new());
        files.replace(&certificate, bad);
        let text = refusal(&files.flags());
        assert!(names(&text, &certificate), "{bad:?}: {text}");
    }
    for bad in ["", "no PEM at all", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"] {
        files.install(&Identity::new());
        files.replace(&key, bad);
        let text = refusal(&files.flags());
        assert!(names(&text, &key), "{bad:?}: {text}");
    }
    // A key that belongs to another certificate.
    files.install(&Identity::new());
    files.replace(&key, &Identity::new().key_pem);
    let text = refusal(&files.flags());
    assert!(names(&text, &certificate) && names(&text, &key), "{text}");

    std::fs::remove_file(&certificate).expect("a file");
    let text = refusal(&files.flags());
    assert!(names(&text, &certificate) && text.contains("No such file"), "{text}");
}
