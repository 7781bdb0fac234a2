//! The API was renamed once, before its first release. No file may speak an old name.

use std::fs;
use std::path::{Path, PathBuf};

/// Old names, each with what it is called now. A name is found only as a whole word.
const OLD_NAMES: &[(&str, &str)] = &[
    ("/replays", "/operations"),
    ("next=true", "POST /events/settle with a claim"),
    ("next=false", "POST /events/settle with a claim"),
    ("replay_not_found", "operation_not_found"),
    ("moved_by", "actor"),
    ("replayed_by", "replay.actor"),
    ("\"replay_config\"", "replay.config"),
    ("`replay_config`", "replay.config"),
    ("\"by\": \"me\"", "actor, which is never sent"),
    ("`by`", "actor, which is never sent"),
    ("next_due", "next_attempt_at"),
    ("event_status", "current_status"),
    ("delivery_status", "current_status"),
    ("created_after", "since"),
    ("created_before", "until"),
    ("stale_for", "stale_for_seconds"),
    ("?wait=", "wait_seconds"),
    ("&wait=", "wait_seconds"),
    ("-d wait=", "wait_seconds"),
    ("\"wait\"", "wait_seconds"),
    ("`wait`", "wait_seconds"),
    ("`wait=`", "wait_seconds"),
    ("?lease=", "lease_seconds"),
    ("&lease=", "lease_seconds"),
    ("-d lease=", "lease_seconds"),
    ("\"lease\"", "lease_seconds"),
    ("`lease` seconds", "lease_seconds"),
    ("`lease=`", "lease_seconds"),
    ("\"request_id\"", "idempotency_key"),
    ("`request_id`", "idempotency_key"),
    ("endpoint.state", "endpoint.breaker"),
    ("[\"endpoint\"][\"state\"]", "endpoint.breaker"),
    ("\"retry\": {", "backoff"),
    ("\"retry\": null", "backoff"),
    ("`retry` of a subscription", "backoff"),
    ("\"DONE\"", "COMPLETED"),
    ("`DONE`", "COMPLETED"),
    ("\"***\"", "header_names"),
    ("`***`", "header_names"),
    ("audit trail", "event log"),
    ("reset_stale", "reset_events"),
    ("list_logs", "list_log_entries"),
    ("change_subscription", "update_subscription"),
    ("rotate_secret", "rotate_subscription_secret"),
    ("start_replay", "replay_dead_letters"),
    ("extend_lease", "send_heartbeat"),
    ("publish_batch", "publish_events"),
    ("rate_per_second", "per_second"),
    ("\"worker_id\", \"results\"", "settlements"),
    ("\"results\": [{\"event_id\"", "settlements"),
];

/// Places where an old name is right, each with the reason.
const EXCEPTIONS: &[(&str, &str, &str)] = &[
    ("tests/old_names.rs", "", "this list"),
    ("docs/decisions/", "", "decisions tell what was before"),
    ("src/logging/", "request_id", "the id of a request, from X-Request-ID, in log lines"),
    ("tests/logs/", "request_id", "the id of a request, in log lines"),
    ("docs/operations.md", "request_id", "the id of a request, in log lines"),
    ("tests/api/dead_letters/", "\"by\": \"me\"", "shows that it is refused"),
    ("tests/api/operations/input.rs", "\"by\": \"me\"", "shows that it is refused"),
    ("tests/api/errors/queries.rs", "", "shows that they are refused"),
    ("tests/api/subscriptions/", "rotate_secret", "the last part of the path"),
    ("README.md", "\"results\"", "of a response"),
    ("bench/", "publish_batch", "a scenario, of other queues too"),
    ("examples/", "extend_lease", "a function of the example"),
    ("openapi.yaml", "rate_per_second", "of a subscription"),
    ("src/http/dashboard/subscription", "rate_per_second", "of a subscription"),
    ("tests/browser/subscriptions.rs", "rate_per_second", "of a subscription"),
    ("docs/push.md", "rate_per_second", "of a subscription"),
    ("src/background/dispatcher/", "rate_per_second", "of a subscription"),
    ("src/cli/nouns/operations.rs", "DONE", "the head of a column"),
    ("src/domain/doctor/", "\"lease\"", "a noun"),
    ("src/cli/nouns/subscriptions.rs", "rate_per_second", "of a subscription"),
    ("src/config/nouns/push.rs", "rate_per_second", "of a subscription"),
    ("src/domain/subscription/", "rate_per_second", "of a subscription"),
    ("tests/api/subscriptions/", "rate_per_second", "of a subscription"),
    ("tests/clients/", "rate_per_second", "of a subscription"),
    ("tests/contract/answers/subscriptions.rs", "rate_per_second", "of a subscription"),
    ("tests/push/", "rate_per_second", "of a subscription"),
];

const PLACES: &[&str] = &["README.md", "openapi.yaml", "docs", "examples", "bench", "src", "tests"];

/// Folders that tools fill, and results that are numbers.
const NOT_OURS: &[&str] = &["node_modules", ".venv", ".generated", "target", "__pycache__", "results.json"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns the files at a place and below it.
fn files(place: &Path) -> Vec<PathBuf> {
    if place.file_name().is_some_and(|name| NOT_OURS.iter().any(|other| name == *other)) {
        return Vec::new();
    }
    match fs::read_dir(place) {
        Ok(entries) => entries.flat_map(|entry| files(&entry.expect("an entry").path())).collect(),
        Err(_) => vec![place.to_owned()],
    }
}

/// Returns whether a line contains a name as a whole word.
fn has_name(line: &str, name: &str) -> bool {
    let is_word = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    let (first, last) = (name.chars().next(), name.chars().next_back());
    line.match_indices(name).any(|(at, _)| {
        let (before, after) = (line[..at].chars().next_back(), line[at + name.len()..].chars().next());
        let continues = (is_word(first) && is_word(before)) || (is_word(last) && is_word(after));
        !continues
    })
}

#[test]
fn no_file_speaks_an_old_name_of_the_api() {
    let mut found = Vec::new();
    for path in PLACES.iter().flat_map(|place| files(&root().join(place))) {
        let Ok(text) = fs::read_to_string(&path) else { continue };
        let name = path.strip_prefix(root()).expect("a file of ours").display().to_string();
        for (number, line) in text.lines().enumerate() {
            for (old, new) in OLD_NAMES.iter().filter(|(old, _)| has_name(line, old)) {
                let is_exception =
                    |(place, allowed, _): &(&str, &str, &str)| name.starts_with(place) && old.contains(allowed);
                if !EXCEPTIONS.iter().any(is_exception) {
                    found.push(format!("{name}:{}: {old} is now {new}", number + 1));
                }
            }
        }
    }
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

#[test]
fn a_name_is_found_as_a_whole_word() {
    assert!(has_name("POST /events/reset?stale_for=3", "stale_for"));
    assert!(!has_name("stale_for_seconds", "stale_for"));
    assert!(has_name("?tags=a&wait=3", "&wait="));
}
