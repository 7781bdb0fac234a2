//! The host names under which clients may address the server.
//!
//! Any web site can make its own name resolve to this server's address (DNS rebinding). A browser then
//! treats the server as part of that site, and sends the site's name in the `Host` header. A host is
//! therefore allowed only if no other party can lead a browser here by it. That holds for every IP
//! address, because a page under an address was served from that address; for `localhost`, which
//! browsers do not resolve by DNS; and for the names that an operator configures.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// The allowed names of the server, in addition to IP addresses and `localhost`. Empty by default.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AllowedHosts {
    any: bool,
    names: Vec<String>,
}

impl AllowedHosts {
    /// Returns whether a request may be addressed to `authority`, a host with an optional port.
    pub fn allow(&self, authority: &str) -> bool {
        if self.any {
            return true;
        }
        let Some(host) = host_of(authority) else { return false };
        if let Some(address) = host.strip_prefix('[').and_then(|inner| inner.strip_suffix(']')) {
            return address.parse::<Ipv6Addr>().is_ok();
        }
        let name = host.strip_suffix('.').unwrap_or(host);
        name.parse::<Ipv4Addr>().is_ok() || is_localhost(name) || self.has_name(name)
    }

    /// Returns whether `authority` is one of the configured names, with an optional port.
    pub fn is_configured(&self, authority: &str) -> bool {
        host_of(authority).is_some_and(|host| self.has_name(host.strip_suffix('.').unwrap_or(host)))
    }

    fn has_name(&self, name: &str) -> bool {
        self.names.iter().any(|known| known.eq_ignore_ascii_case(name))
    }
}

impl FromStr for AllowedHosts {
    type Err = String;

    /// Parses comma-separated names. `*` allows every host; empty text adds no name.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut hosts = AllowedHosts::default();
        for entry in text.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
            match entry {
                "*" => hosts.any = true,
                _ if is_name(entry) => hosts.names.push(entry.trim_end_matches('.').to_owned()),
                _ => return Err(format!("{entry} is not a host name; write it without a scheme and a port")),
            }
        }
        Ok(hosts)
    }
}

/// Returns the host without its port, or `None` if the part after the colon is not a port.
fn host_of(authority: &str) -> Option<&str> {
    let end_of_host = authority.find(']').map_or(0, |bracket| bracket + 1);
    let Some(colon) = authority[end_of_host..].find(':') else { return Some(authority) };
    let (host, port) = authority.split_at(end_of_host + colon);
    port[1..].bytes().all(|byte| byte.is_ascii_digit()).then_some(host)
}

/// Returns whether a name is `localhost` or below it. These names never leave the machine (RFC 6761).
fn is_localhost(name: &str) -> bool {
    const LOCALHOST: &str = "localhost";
    let Some(start) = name.len().checked_sub(LOCALHOST.len()) else { return false };
    let (before, end) = (&name.as_bytes()[..start], &name.as_bytes()[start..]);
    end.eq_ignore_ascii_case(LOCALHOST.as_bytes()) && before.last().is_none_or(|byte| *byte == b'.')
}

fn is_name(entry: &str) -> bool {
    entry.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_localhost_are_always_allowed() {
        let hosts = AllowedHosts::default();
        for host in ["localhost", "LOCALHOST:80", "a.localhost", "localhost.", "127.0.0.1", "10.1.2.3:8080", "[::1]:1"]
        {
            assert!(hosts.allow(host), "{host}");
        }
    }

    #[test]
    fn other_names_are_refused_in_every_disguise() {
        let hosts = AllowedHosts::default();
        let refused = [
            "evil.example",
            "notlocalhost",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "127.1",
            "[::1",
            "::1",
            "[::1]x",
            "[evil.example]",
            "localhost:x",
            "localhost:80:80",
            "127.0.0.1:80@evil.example",
            "é",
            "élocalhost",
        ];
        for host in refused {
            assert!(!hosts.allow(host), "{host}");
        }
    }

    #[test]
    fn configured_names_are_compared_without_case_port_and_final_dot() {
        let hosts: AllowedHosts = "queue.example., waybill".parse().unwrap();
        for host in ["queue.example", "QUEUE.example:8443", "queue.example.", "waybill"] {
            assert!(hosts.allow(host), "{host}");
        }
        assert!(!hosts.allow("a.queue.example"));
        assert!(hosts.is_configured("QUEUE.example.:8443"));
        assert!(!hosts.is_configured("localhost") && !hosts.is_configured("127.0.0.1"));
        assert!("*".parse::<AllowedHosts>().unwrap().allow("evil.example"));
    }
}
