//! `waybill completions` and `waybill man`.

use std::fs;
use std::process::{Command, Output};

use tempfile::tempdir;

use crate::support::process::waybill;

fn printed(arguments: &[&str]) -> String {
    let output = waybill(arguments).output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

fn succeed(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

#[test]
fn bash_completes_commands_verbs_and_flags() {
    let folder = tempdir().expect("a folder");
    let script = folder.path().join("waybill.bash");
    fs::write(&script, printed(&["completions", "bash"])).expect("a file");
    succeed(Command::new("bash").arg("-n").arg(&script));
    for (words, completed) in [
        ("waybill ev", "events"),
        ("waybill events ta", "tail"),
        ("waybill events list --ordering-k", "--ordering-key"),
        ("waybill events list --color al", "always"),
    ] {
        let complete = r#"source "$1"; COMP_WORDS=($2); COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
            _waybill waybill "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"; echo "${COMPREPLY[@]}""#;
        let output = succeed(Command::new("bash").args(["-c", complete, "bash"]).arg(&script).arg(words));
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), completed, "{words}");
    }
}

#[test]
fn every_shell_has_its_script() {
    for (shell, part) in [
        ("zsh", "#compdef waybill"),
        ("fish", "complete -c waybill"),
        ("elvish", "edit:completion:arg-completer[waybill]"),
        ("powershell", "Register-ArgumentCompleter"),
    ] {
        assert!(printed(&["completions", shell]).contains(part), "{shell}");
    }
}

#[test]
fn every_command_has_a_page_that_man_can_read() {
    let folder = tempdir().expect("a folder");
    printed(&["man", "--dir", folder.path().to_str().expect("text")]);
    let page = fs::read_to_string(folder.path().join("waybill-events-list.1")).expect("a page");
    assert!(page.contains(".TH waybill-events-list 1") && page.contains("WAYBILL_URL"), "{page}");
    let first = printed(&["man"]);
    assert_eq!(first, fs::read_to_string(folder.path().join("waybill.1")).expect("a page"));
    for part in [".TH waybill 1", ".SH NAME", "waybill\\-publish(1)", "waybill\\-top(1)"] {
        assert!(first.contains(part), "{part}");
    }
    // Where there is no man, nobody reads pages.
    if Command::new("man").arg("--version").output().is_err() {
        return;
    }
    for entry in fs::read_dir(folder.path()).expect("a folder") {
        let path = entry.expect("a page").path();
        let output = succeed(Command::new("man").args(["--warnings", "-l"]).arg(&path).env("MANPAGER", "cat"));
        assert!(output.stderr.is_empty(), "{}: {}", path.display(), String::from_utf8_lossy(&output.stderr));
        assert!(String::from_utf8_lossy(&output.stdout).contains("NAME"), "{}", path.display());
    }
}

#[test]
fn the_help_of_work_and_publish_has_their_contract() {
    let one_line = |text: String| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let work = one_line(printed(&["work", "--help"]));
    for text in
        ["WAYBILL_EVENT_ID", "WAYBILL_PROGRESS_FILE", "Exit status 0 completes", "65 fails it for good", "SIGHUP"]
    {
        assert!(work.contains(text), "{text}: {work}");
    }
    let publish = one_line(printed(&["publish", "--help"]));
    assert!(publish.contains("under the same idempotency key"), "{publish}");
    let commands = printed(&["--help"]);
    assert!(commands.contains("Work on events: run a program for each\n"), "{commands}");
}
