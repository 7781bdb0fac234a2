//! The connection URL of a server behind a Unix socket.

use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::init::ROLE;
use super::settings::PORT;

/// Returns the URL, with the percent-encoded socket directory as the host.
pub(super) fn socket_url(socket_dir: &Path, password: &str, database: &str) -> String {
    let host = encode(socket_dir.as_os_str().as_bytes());
    let database = encode(database.as_bytes());
    format!("postgres://{ROLE}:{password}@{host}:{PORT}/{database}")
}

fn encode(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut encoded, &byte| {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            // Writing to a String cannot fail.
            let _ = write!(encoded, "%{byte:02X}");
        }
        encoded
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_directory_becomes_the_host() {
        let url = socket_url(Path::new("/var/lib/way bill/run"), "abc", "postgres");
        assert_eq!(url, "postgres://waybill:abc@%2Fvar%2Flib%2Fway%20bill%2Frun:5432/postgres");
    }

    #[test]
    fn a_database_name_cannot_add_parameters() {
        let url = socket_url(Path::new("/run"), "abc", "a?host=evil/ü");
        assert_eq!(url, "postgres://waybill:abc@%2Frun:5432/a%3Fhost%3Devil%2F%C3%BC");
    }
}
