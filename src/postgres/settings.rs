//! The command-line settings of the embedded server, each with its reason.
//!
//! `TUNING` contains defaults that the caller may override. `WIRING` contains settings that this module
//! depends on (the socket, the format of stderr). They come last, so no override can break the
//! connection to the server.
//!
//! Left at their defaults after a comparison (`bench/settings`, figures in bench/RESULTS.md), because none of them
//! was faster beyond the noise: `wal_sync_method`, `commit_delay`. Sequences are not cached per session: ids must
//! grow in the order of publishing.
//!
//! `fsync`, `full_page_writes` and `synchronous_commit` are omitted on purpose: they keep PostgreSQL's
//! default, on. An acknowledged event must survive a power cut.

use std::ffi::OsString;
use std::path::Path;
use std::process::Stdio;

use super::owner::Owner;

pub(super) const PORT: u16 = 5432;

const TUNING: &[(&str, &str)] = &[
    // Only a default; `startup` derives the value from `--db-connections`.
    ("max_connections", "64"),
    // Reading the trail of an event that has left locks every weekly partition of the event log and its indexes:
    // three years are 1,300 locks for each concurrent reader.
    ("max_locks_per_transaction", "1024"),
    // Keeps the hot tables (`ready`, open deliveries) in memory, and fits a small machine.
    ("shared_buffers", "256MB"),
    // Queue statements take microseconds: compiling one costs more than it saves.
    ("jit", "off"),
    // On SSDs an index lookup costs little more than a scan. The default of 4 makes the planner prefer scans.
    ("random_page_cost", "1.1"),
    // Fewer checkpoints: after each one, the next write of every page costs a full page image.
    ("max_wal_size", "2GB"),
    ("checkpoint_timeout", "15min"),
    // A queue produces dead rows constantly: vacuum often, and ten times faster than the default.
    ("autovacuum_naptime", "10s"),
    ("autovacuum_vacuum_cost_limit", "2000"),
    // One time zone for all readers of the data and the log.
    ("timezone", "UTC"),
    ("log_timezone", "UTC"),
    // A failed statement may contain a payload or a secret; neither belongs in a log.
    ("log_min_error_statement", "panic"),
    // Identifies this server in `ps`.
    ("cluster_name", "waybill"),
];

const WIRING: &[(&str, &str)] = &[
    // Reachable only through the socket: no port conflicts, no access from the network.
    ("listen_addresses", ""),
    ("unix_socket_permissions", "0700"),
    // Readiness and errors are read from stderr.
    ("log_destination", "stderr"),
    ("logging_collector", "off"),
    ("log_line_prefix", "[%p] "),
    // `stderr` matches English messages; in a translated log the server would never become ready.
    ("lc_messages", "C"),
    // With a higher threshold the "ready" line would not be written.
    ("log_min_messages", "warning"),
];

/// Returns settings that only some builds support and that this build does.
///
/// Full page images are most of the WAL after a checkpoint. lz4 halves the WAL at no measurable cost.
/// PostgreSQL's own pglz (`on`), which every build has, also halves it but more than doubled the latency,
/// so it is not used instead. A build without lz4 cannot replay a WAL written with it: switch to such a
/// build only after a clean stop.
pub(super) fn supported(owner: &Owner, program: &Path, cluster: &Path) -> Vec<(String, String)> {
    let result = owner
        .command(program)
        .arg("-D")
        .arg(cluster)
        .args(["-c", "wal_compression=lz4", "-C", "wal_compression"])
        .stderr(Stdio::null())
        .output();
    match result {
        Ok(output) if output.status.success() => vec![("wal_compression".into(), "lz4".into())],
        // The build lacks lz4, or cannot run; the start itself will report the latter.
        _ => Vec::new(),
    }
}

/// Returns all `-c name=value` arguments. Later ones win.
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

/// Returns the setting of the socket directory. Its value is a comma-separated list, so a path with a comma
/// or a space must be quoted.
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
