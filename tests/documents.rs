//! Links and paths in the documents must exist.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Folders whose names, in backticks, are taken for paths from the root of the repository.
const ROOTS: &[&str] =
    &["src/", "tests/", "docs/", "bench/", "migrations/", "examples/", "scripts/", "deploy/", ".ci/", "sql/"];

/// Paths that exist only after a benchmark has run.
const MADE_LATER: &[&str] = &["bench/results.json"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn documents() -> Vec<PathBuf> {
    let mut folders = vec![root().to_owned(), root().join("docs"), root().join("docs/decisions")];
    folders.extend([root().join("bench"), root().join("examples")]);
    let files = folders.iter().flat_map(|folder| fs::read_dir(folder).expect("a folder"));
    let paths = files.map(|file| file.expect("a file").path());
    let documents: Vec<PathBuf> = paths.filter(|path| path.extension().is_some_and(|end| end == "md")).collect();
    assert!(documents.len() > 20, "{documents:?}");
    documents
}

/// Returns the text without blocks of code, in which brackets mean other things.
fn prose(text: &str) -> String {
    text.split("```").step_by(2).collect()
}

/// Returns the targets of `[text](target)`.
fn links(text: &str) -> impl Iterator<Item = &str> {
    text.split("](").skip(1).filter_map(|rest| rest.split(')').next())
}

/// Returns the headings as the usual hosts turn them into anchors.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = text.lines().filter_map(|line| line.strip_prefix('#'));
    let word = |c: char| c.is_alphanumeric() || c == '-' || c == '_';
    let anchor = |heading: &str| -> String {
        let heading = heading.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
        heading.chars().filter(|c| word(*c)).collect()
    };
    headings.map(anchor).collect()
}

#[test]
fn links_between_documents_lead_to_files_and_headings() {
    let mut broken = Vec::new();
    for document in documents() {
        let text = fs::read_to_string(&document).expect("text");
        for link in links(&prose(&text)).filter(|link| !link.contains("://")) {
            let (file, heading) = link.split_once('#').map_or((link, None), |(file, heading)| (file, Some(heading)));
            let target = if file.is_empty() { document.clone() } else { document.with_file_name("").join(file) };
            let leads_there = match heading {
                None => target.exists(),
                Some(heading) => fs::read_to_string(&target).is_ok_and(|text| anchors(&prose(&text)).contains(heading)),
            };
            if !leads_there {
                broken.push(format!("{}: {link}", document.display()));
            }
        }
    }
    assert_eq!(broken, [""; 0]);
}

#[test]
fn paths_in_documents_exist() {
    let mut missing = Vec::new();
    for document in documents() {
        let text = prose(&fs::read_to_string(&document).expect("text"));
        let quoted = text.split('`').skip(1).step_by(2).flat_map(str::split_whitespace);
        let paths = quoted.filter(|word| ROOTS.iter().any(|root| word.starts_with(root)));
        for path in paths.map(|word| word.trim_end_matches([',', ';', '.', ':'])) {
            let is_pattern = path.contains(['*', '<', '…', '{', '$']);
            let exists = root().join(path).exists()
                || (path.starts_with("sql/") && root().join("src/store").join(path).exists());
            if !is_pattern && !MADE_LATER.contains(&path) && !exists {
                missing.push(format!("{}: {path}", document.display()));
            }
        }
    }
    assert_eq!(missing, [""; 0]);
}

#[test]
fn the_licence_is_the_same_in_all_files() {
    let read = |name: &str| fs::read_to_string(root().join(name)).expect("a file");
    assert!(read("LICENSE").starts_with("MIT License"));
    assert!(read("Cargo.toml").contains("license = \"MIT\""));
    assert!(read("openapi.yaml").contains("    name: MIT\n    identifier: MIT\n"));
    assert!(read("README.md").contains("[MIT](LICENSE)"));
}
