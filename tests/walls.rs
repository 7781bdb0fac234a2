//! The allowed dependencies between modules, checked by reading the source.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Each module, and the modules that it may use.
const DEPENDENCIES: &[(&str, &[&str])] = &[
    ("domain", &[]),
    ("error", &["domain"]),
    ("store", &["domain", "error"]),
    ("engine", &["domain", "error", "logging", "metrics", "store", "traces"]),
    ("http", &["config", "domain", "engine", "error", "logging", "metrics", "store", "traces", "webhook"]),
    ("background", &["domain", "engine", "error", "logging", "metrics", "store", "traces", "webhook"]),
    ("webhook", &["domain"]),
    ("traces", &["domain", "metrics", "webhook"]),
    ("postgres", &[]),
    ("backup", &["postgres"]),
    ("logging", &["config"]),
    // Each module defines its own settings.
    ("config", &["background", "domain", "engine", "store", "traces", "webhook"]),
    // The startup code uses all modules.
    ("startup", &["background", "config", "engine", "error", "http", "postgres", "store", "traces", "webhook"]),
    ("metrics", &[]),
    ("bench", &["client", "config"]),
    ("client", &[]),
    (
        "cli",
        &[
            "backup", "bench", "client", "config", "domain", "engine", "error", "logging", "postgres", "startup",
            "store",
        ],
    ),
    ("lib", &[]),
    ("main", &["cli", "config"]),
];

/// A source file: its module, its path, and its code without comments.
struct Source {
    module: String,
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
    let inside = path.strip_prefix(src).expect("a file below src").to_path_buf();
    let module = inside.components().next().expect("a name").as_os_str().to_string_lossy();
    Source { module: module.trim_end_matches(".rs").to_owned(), path: inside, code }
}

/// Returns the names that follow `prefix`, be it one or a list in braces.
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

/// Returns the modules that a file uses, other than its own.
fn used_modules(source: &Source) -> BTreeSet<&str> {
    let inside = names_after(&source.code, "crate::");
    let from_outside = names_after(&source.code, "waybill::").filter(|_| source.module == "main");
    inside.chain(from_outside).filter(|module| !module.is_empty() && *module != source.module).collect()
}

#[test]
fn every_module_uses_only_the_modules_it_may() {
    let dependencies: BTreeMap<&str, &[&str]> = DEPENDENCIES.iter().copied().collect();
    let mut wrong = Vec::new();
    for source in sources() {
        let allowed = dependencies
            .get(source.module.as_str())
            .unwrap_or_else(|| panic!("{}: a module without listed dependencies", source.module));
        let known = used_modules(&source);
        wrong.extend(
            known.iter().filter(|module| !allowed.contains(module)).map(|r| format!("{}: {r}", source.path.display())),
        );
    }
    assert_eq!(wrong, [""; 0]);
}

/// A dependency that no file needs any more is removed from the list.
#[test]
fn every_allowed_dependency_is_used() {
    let mut needed: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for source in sources() {
        let known = used_modules(&source).into_iter().map(str::to_owned);
        needed.entry(source.module.clone()).or_default().extend(known);
    }
    for (module, allowed) in DEPENDENCIES {
        for other in *allowed {
            assert!(needed.get(*module).is_some_and(|needed| needed.contains(*other)), "{module} → {other}");
        }
    }
}

#[test]
fn the_documentation_lists_the_same_dependencies() {
    let text = include_str!("../docs/architecture.md");
    let rows = text.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` |"));
    let dependencies = rows.map(|(module, others)| (module, others.split('`').skip(1).step_by(2).collect::<Vec<_>>()));
    assert_eq!(
        dependencies.collect::<Vec<_>>(),
        DEPENDENCIES.iter().map(|(module, others)| (*module, others.to_vec())).collect::<Vec<_>>()
    );
}

#[test]
fn no_module_uses_super_super() {
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
    for source in sources().iter().filter(|source| source.module != "store") {
        for word in SQL {
            assert!(!source.code.contains(word), "{word} in {}", source.path.display());
        }
    }
}

#[test]
fn only_the_engine_opens_transactions() {
    for source in sources().iter().filter(|source| source.module != "engine") {
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
    for source in sources().iter().filter(|source| source.module == "http") {
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

/// `get_result` and `first` return with the first row: what fails behind it is never seen (`whole_result.rs`).
#[test]
fn the_store_reads_results_to_their_end() {
    for source in sources().iter().filter(|source| !source.path.ends_with("whole_result.rs")) {
        for word in ["get_result", "load_stream", ".first(conn)", ".first(&mut", ".first::<", ".first(connection)"] {
            assert!(!source.code.contains(word), "{word} in {}", source.path.display());
        }
    }
}
