//! What the embedded server is told on its command line, each with its why.
//!
//! Two tables: `TUNING` are defaults that the caller may override; `WIRING` is
//! what this room itself relies on (where the socket is, how stderr looks) and
//! comes last, so that no override can cut the line between us and the server.
//!
//! Not here on purpose: `fsync`, `full_page_writes` and `synchronous_commit`
//! keep PostgreSQL's default, on. An acknowledged event must survive a power cut.

use std::ffi::OsString;
use std::path::Path;
use std::process::Stdio;

use super::owner::Owner;

pub(super) const PORT: u16 = 5432;

const TUNING: &[(&str, &str)] = &[
    // A default for whoever names none; the server derives it from `--db-connections`.
    ("max_connections", "64"),
    // Reading a trail locks every partition of the event log and its indexes: three years of days
    // are 4,000 locks for each connection that reads at the same time.
    ("max_locks_per_transaction", "1024"),
    // The hot tables (`ready`, open deliveries) stay in memory; small enough for a small machine.
    ("shared_buffers", "256MB"),
    // Queue statements last microseconds: compiling one costs more than it can ever save.
    ("jit", "off"),
    // SSDs: an index lookup is hardly dearer than a scan. The default of 4 drives the planner into scans.
    ("random_page_cost", "1.1"),
    // Fewer, longer checkpoints: each one makes the next write of every page cost a full page image.
    ("max_wal_size", "2GB"),
    ("checkpoint_timeout", "15min"),
    // A queue makes dead rows all day: look often, and let the cleaner work ten times faster than its shy default.
    ("autovacuum_naptime", "10s"),
    ("autovacuum_vacuum_cost_limit", "2000"),
    // One clock for everyone who reads the data or the log.
    ("timezone", "UTC"),
    ("log_timezone", "UTC"),
    // A failed statement may carry a payload or a secret; neither belongs in a log.
    ("log_min_error_statement", "panic"),
    // So that `ps` tells this server from others on the machine.
    ("cluster_name", "waybill"),
];

const WIRING: &[(&str, &str)] = &[
    // Reachable through the socket only: no port to clash with, nothing to scan from outside.
    ("listen_addresses", ""),
    ("unix_socket_permissions", "0700"),
    // stderr is our only ear: readiness and trouble are read off it.
    ("log_destination", "stderr"),
    ("logging_collector", "off"),
    ("log_line_prefix", "[%p] "),
    // We match English words; a translated log would never look ready.
    ("lc_messages", "C"),
    // With a higher threshold the "ready" line would not be written at all.
    ("log_min_messages", "warning"),
];

/// What only some builds can do, asked of this one.
///
/// Full page images are the bulk of the log after a checkpoint. lz4 halves the
/// log at no cost that could be measured. PostgreSQL's own pglz (`on`), which
/// every build has, halves it too but more than doubled the latency, so it is no substitute.
/// A log written with lz4 cannot be replayed by a build without it: change to such
/// a build after a clean stop only.
pub(super) fn supported(owner: &Owner, program: &Path, cluster: &Path) -> Vec<(String, String)> {
    let asked = owner
        .command(program)
        .arg("-D")
        .arg(cluster)
        .args(["-c", "wal_compression=lz4", "-C", "wal_compression"])
        .stderr(Stdio::null())
        .output();
    match asked {
        Ok(output) if output.status.success() => vec![("wal_compression".into(), "lz4".into())],
        // Too old a build, or one in trouble: the start itself will say which.
        _ => Vec::new(),
    }
}

/// All `-c name=value` arguments, in the order in which later ones win.
pub(super) fn arguments(socket_dir: &Path, overrides: &[(String, String)]) -> Vec<OsString> {
    let overrides = overrides.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let tuning = TUNING.iter().copied();
    let wiring = WIRING.iter().copied();
    let port = PORT.to_string();
    tuning
        .chain(overrides)
        .chain(wiring)
        .chain([("port", port.as_str())])
        .map(|(name, value)| OsString::from(format!("{name}={value}")))
        .chain([socket_setting(socket_dir)])
        .flat_map(|setting| [OsString::from("-c"), setting])
        .collect()
}

/// The value is a comma-separated list: a path with a comma or a space must be quoted.
fn socket_setting(socket_dir: &Path) -> OsString {
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    let mut setting = b"unix_socket_directories=\"".to_vec();
    for &byte in socket_dir.as_os_str().as_bytes() {
        setting.push(byte);
        if byte == b'"' {
            setting.push(byte);
        }
    }
    setting.push(b'"');
    OsString::from_vec(setting)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rendered(overrides: &[(&str, &str)]) -> Vec<String> {
        let overrides: Vec<_> = overrides.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        arguments(Path::new("/run/a, b\"c"), &overrides)
            .into_iter()
            .map(|argument| argument.to_string_lossy().into_owned())
            .filter(|argument| argument != "-c")
            .collect()
    }

    fn position(settings: &[String], wanted: &str) -> usize {
        settings
            .iter()
            .position(|setting| setting == wanted)
            .unwrap_or_else(|| panic!("{wanted} is not in {settings:?}"))
    }

    #[test]
    fn an_override_comes_after_our_tuning() {
        let settings = rendered(&[("jit", "on")]);
        assert!(position(&settings, "jit=on") > position(&settings, "jit=off"));
    }

    #[test]
    fn our_wiring_comes_after_an_override() {
        let settings = rendered(&[("listen_addresses", "*")]);
        assert!(position(&settings, "listen_addresses=") > position(&settings, "listen_addresses=*"));
    }

    #[test]
    fn a_socket_directory_is_quoted() {
        position(&rendered(&[]), "unix_socket_directories=\"/run/a, b\"\"c\"");
    }

    #[test]
    fn durability_is_never_switched_off() {
        for setting in rendered(&[]) {
            assert!(!setting.starts_with("fsync"), "{setting}");
            assert!(!setting.starts_with("full_page_writes"), "{setting}");
            assert!(!setting.starts_with("synchronous_commit"), "{setting}");
        }
    }
}
