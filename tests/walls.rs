//! The arrows between the rooms of the house, kept honest by reading the source.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Each room, and the rooms that it may know.
const ARROWS: &[(&str, &[&str])] = &[
    ("domain", &[]),
    ("error", &["domain"]),
    ("store", &["domain", "error"]),
    ("engine", &["domain", "error", "logging", "metrics", "store"]),
    ("http", &["config", "domain", "engine", "error", "logging", "store", "webhook"]),
    ("background", &["domain", "engine", "error", "metrics", "store", "webhook"]),
    ("webhook", &["domain"]),
    ("postgres", &[]),
    ("logging", &["config"]),
    // Settings are typed by those whom they are for.
    ("config", &["background", "domain", "engine", "store", "webhook"]),
    // Those who put the house together know all of it.
    ("startup", &["background", "config", "engine", "error", "http", "postgres", "store", "webhook"]),
    ("metrics", &[]),
    ("bench", &["config"]),
    ("cli", &["bench", "config", "engine", "error", "logging", "startup", "store"]),
    ("lib", &[]),
    ("main", &["cli", "config"]),
];

/// A source file: its room, its path, and its text without comments.
struct Source {
    room: String,
    path: PathBuf,
    code: String,
}

fn sources() -> Vec<Source> {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut folders = vec![src.clone()];
    let mut sources = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                sources.push(read(&src, path));
            }
        }
    }
    assert!(sources.len() > 50, "only {} files were found", sources.len());
    sources
}

fn read(src: &Path, path: PathBuf) -> Source {
    let text = fs::read_to_string(&path).expect("a file that is text");
    let code = text.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n");
    let inside = path.strip_prefix(src).expect("a file of the house").to_path_buf();
    let room = inside.components().next().expect("a name").as_os_str().to_string_lossy();
    Source { room: room.trim_end_matches(".rs").to_owned(), path: inside, code }
}

/// The names that follow `prefix`, be it one or a list in braces.
fn names_after<'a>(code: &'a str, prefix: &'a str) -> impl Iterator<Item = &'a str> {
    code.split(prefix).skip(1).flat_map(|rest| match rest.strip_prefix('{') {
        Some(list) => list.split('}').next().unwrap_or_default().split(',').map(first_word).collect::<Vec<_>>(),
        None => vec![first_word(rest)],
    })
}

fn first_word(text: &str) -> &str {
    let text = text.trim_start();
    text.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default()
}

/// The rooms that a file knows, its own apart.
fn known_rooms(source: &Source) -> BTreeSet<&str> {
    let inside = names_after(&source.code, "crate::");
    let from_outside = names_after(&source.code, "waybill::").filter(|_| source.room == "main");
    inside.chain(from_outside).filter(|room| !room.is_empty() && *room != source.room).collect()
}

#[test]
fn every_room_knows_only_the_rooms_it_may() {
    let arrows: BTreeMap<&str, &[&str]> = ARROWS.iter().copied().collect();
    let mut wrong = Vec::new();
    for source in sources() {
        let allowed =
            arrows.get(source.room.as_str()).unwrap_or_else(|| panic!("{}: a room without arrows", source.room));
        let known = known_rooms(&source);
        wrong.extend(
            known.iter().filter(|room| !allowed.contains(room)).map(|r| format!("{}: {r}", source.path.display())),
        );
    }
    assert_eq!(wrong, [""; 0]);
}

/// An arrow that nothing needs any more is taken away.
#[test]
fn every_arrow_is_needed() {
    let mut needed: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for source in sources() {
        let known = known_rooms(&source).into_iter().map(str::to_owned);
        needed.entry(source.room.clone()).or_default().extend(known);
    }
    for (room, allowed) in ARROWS {
        for other in *allowed {
            assert!(needed.get(*room).is_some_and(|needed| needed.contains(*other)), "{room} → {other}");
        }
    }
}

#[test]
fn the_documentation_has_the_same_arrows() {
    let text = include_str!("../docs/architecture.md");
    let rows = text.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` |"));
    let arrows = rows.map(|(room, others)| (room, others.split('`').skip(1).step_by(2).collect::<Vec<_>>()));
    assert_eq!(
        arrows.collect::<Vec<_>>(),
        ARROWS.iter().map(|(room, others)| (*room, others.to_vec())).collect::<Vec<_>>()
    );
}

#[test]
fn nobody_climbs_over_a_wall() {
    for source in sources() {
        assert!(!source.code.contains("super::super::"), "{}", source.path.display());
    }
}

#[test]
fn sql_is_in_the_store_and_nowhere_else() {
    const SQL: &[&str] = &[
        "sql_query",
        "batch_execute",
        "include_str!(\"sql/",
        "sql_types",
        "\"SELECT ",
        "\"INSERT ",
        "\"UPDATE ",
        "\"DELETE ",
    ];
    for source in sources().iter().filter(|source| source.room != "store") {
        for word in SQL {
            assert!(!source.code.contains(word), "{word} in {}", source.path.display());
        }
    }
}

#[test]
fn transactions_are_the_engines_business() {
    for source in sources().iter().filter(|source| source.room != "engine") {
        for word in ["transaction!", ".transaction(", "::transaction("] {
            assert!(!source.code.contains(word), "{word} in {}", source.path.display());
        }
    }
}

#[test]
fn http_only_reads_from_the_store() {
    const WRITES: &[&str] = &[
        "append", "claim", "complete", "create", "forget", "listen", "lock", "notify", "publish", "record", "remember",
        "save",
    ];
    for source in sources().iter().filter(|source| source.room == "http") {
        for import in source.code.split("crate::store::").skip(1) {
            let import = import.split([';', ')']).next().unwrap_or_default();
            let words = import.split(|c: char| !c.is_alphanumeric() && c != '_');
            for word in words.filter(|word| word.starts_with(|c: char| c.is_lowercase())) {
                let verb = word.split('_').next().unwrap_or_default();
                assert!(!WRITES.contains(&verb), "{word} in {}", source.path.display());
            }
        }
    }
}
