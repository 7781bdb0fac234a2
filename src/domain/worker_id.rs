//! Worker ids: `{hostname}:{pid}`.
//!
//! A worker id is for display and a fallback for fencing. It never proves that a caller holds a claim,
//! because the processes of different containers may all have pid 1.

use super::{limits, text};

/// Checks that `value` is `{hostname}:{pid}`.
pub(crate) fn check(value: &str) -> Result<(), String> {
    const SHAPE: &str = "must be {hostname}:{pid}, such as worker-02:8742";
    text::check(value, limits::WORKER_ID_CHARS)?;
    let (host, pid) = value.rsplit_once(':').ok_or(SHAPE)?;
    let host_is_fine = !host.is_empty() && host.chars().all(|c| !c.is_control() && !c.is_whitespace() && c != ',');
    let pid_is_fine = (1..=10).contains(&pid.len()) && pid.bytes().all(|digit| digit.is_ascii_digit());
    if host_is_fine && pid_is_fine { Ok(()) } else { Err(SHAPE.into()) }
}

#[cfg(test)]
mod tests {
    use super::check;

    #[test]
    fn a_host_and_a_pid_are_a_worker_id() {
        for good in ["worker-02:8742", "10.0.0.7:1", "::1:99", "host.example:0"] {
            assert!(check(good).is_ok(), "{good}");
        }
    }

    #[test]
    fn anything_else_is_refused() {
        for bad in ["", "worker", "worker:", ":12", "worker:x1", "wor ker:1", "w:-1", "w:12345678901"] {
            assert!(check(bad).is_err(), "{bad}");
        }
    }
}
