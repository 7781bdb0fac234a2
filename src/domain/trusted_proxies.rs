//! The proxies whose word about a client's address is believed.
//!
//! A proxy adds the address of its client to a header of the request. Any client can send the same
//! header, so it counts only if it comes from a proxy that the operator trusts. Each proxy adds to the
//! end. Reading from the end, the first address that is not a trusted proxy's is the client's; what
//! stands before it was written by the client itself.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use super::address::AllowList;

/// The networks of trusted proxies. Empty by default.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TrustedProxies(AllowList);

impl FromStr for TrustedProxies {
    type Err = String;

    /// Parses a comma-separated list of networks and addresses.
    fn from_str(text: &str) -> Result<Self, String> {
        text.parse().map(Self)
    }
}

impl TrustedProxies {
    /// Returns whether an address is that of a trusted proxy.
    pub fn contains(&self, address: IpAddr) -> bool {
        match address.to_canonical() {
            // The operator may have written either form of the address.
            IpAddr::V4(address) => self.0.contains(address.into()) || self.0.contains(address.to_ipv6_mapped().into()),
            address @ IpAddr::V6(_) => self.0.contains(address),
        }
    }

    /// Returns the address of the client behind `peer`, or `None` if the chain is malformed, or is unknown at
    /// the place that matters. `chain` has the clients of the proxies, the one that `peer` reports last.
    pub fn client_behind<'a>(&self, peer: IpAddr, chain: impl DoubleEndedIterator<Item = &'a str>) -> Option<IpAddr> {
        let mut client = peer.to_canonical();
        for node in chain.rev() {
            if !self.contains(client) {
                break;
            }
            client = parse_node(node)?.to_canonical();
        }
        Some(client)
    }
}

/// Parses an address with an optional port: `192.0.2.1`, `192.0.2.1:80`, `2001:db8::1`, `[2001:db8::1]`,
/// `[2001:db8::1]:80`. A port of `Forwarded` may also be a made-up name, `_port`.
fn parse_node(node: &str) -> Option<IpAddr> {
    let node = node.trim();
    if let Ok(address) = node.parse::<IpAddr>() {
        return Some(address);
    }
    if let Ok(address) = node.parse::<SocketAddr>() {
        return Some(address.ip());
    }
    if let Some((address, port)) = node.strip_prefix('[')?.split_once(']') {
        let is_port = port.is_empty() || port.starts_with(":_");
        return address.parse::<Ipv6Addr>().ok().filter(|_| is_port).map(IpAddr::from);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(trusted: &str, peer: &str, chain: &[&str]) -> Option<String> {
        let trusted: TrustedProxies = trusted.parse().unwrap();
        trusted.client_behind(peer.parse().unwrap(), chain.iter().copied()).map(|address| address.to_string())
    }

    #[test]
    fn the_client_is_the_last_address_that_is_not_a_trusted_proxys() {
        for (trusted, peer, chain, expected) in [
            // Nobody is trusted.
            ("", "203.0.113.9", &["192.0.2.1"][..], "203.0.113.9"),
            // The peer is not a trusted proxy.
            ("10.0.0.0/8", "203.0.113.9", &["192.0.2.1"], "203.0.113.9"),
            // A trusted proxy that reports nothing.
            ("10.0.0.0/8", "10.0.0.1", &[], "10.0.0.1"),
            ("10.0.0.0/8", "10.0.0.1", &["192.0.2.1"], "192.0.2.1"),
            // What the client wrote itself is not believed.
            ("10.0.0.0/8", "10.0.0.1", &["8.8.8.8", "192.0.2.1"], "192.0.2.1"),
            ("10.0.0.0/8", "10.0.0.1", &["unknown", "192.0.2.1"], "192.0.2.1"),
            // Two trusted proxies in a row.
            ("10.0.0.0/8", "10.0.0.1", &["8.8.8.8", "192.0.2.1", "10.0.0.2"], "192.0.2.1"),
            // A client inside the trusted network.
            ("10.0.0.0/8", "10.0.0.1", &["10.0.0.3"], "10.0.0.3"),
            // Ports, IPv6, and IPv4 inside IPv6.
            ("10.0.0.1", "10.0.0.1", &["192.0.2.1:1234"], "192.0.2.1"),
            ("10.0.0.1", "10.0.0.1", &["[2001:db8::1]:1234"], "2001:db8::1"),
            ("10.0.0.1", "10.0.0.1", &["[2001:db8::1]:_x"], "2001:db8::1"),
            ("10.0.0.1", "10.0.0.1", &[" [2001:db8::1] "], "2001:db8::1"),
            ("10.0.0.1", "10.0.0.1", &["2001:db8::1"], "2001:db8::1"),
            ("10.0.0.1", "::ffff:10.0.0.1", &["::ffff:192.0.2.1"], "192.0.2.1"),
            ("::ffff:10.0.0.1", "::ffff:10.0.0.1", &["192.0.2.1"], "192.0.2.1"),
            ("fd00::/8", "fd00::1", &["192.0.2.1"], "192.0.2.1"),
            ("", "::ffff:192.0.2.1", &[], "192.0.2.1"),
        ] {
            assert_eq!(client(trusted, peer, chain).as_deref(), Some(expected), "{trusted} {peer} {chain:?}");
        }
    }

    #[test]
    fn a_chain_that_is_malformed_where_it_matters_names_no_client() {
        for bad in ["", "unknown", "_hidden", "unix:/run/x", "192.0.2", "192.0.2.1:x", "[192.0.2.1]", "fe80::1%eth0"] {
            assert_eq!(client("10.0.0.1", "10.0.0.1", &["192.0.2.1", bad]), None, "{bad}");
        }
        for bad in ["[2001:db8::1", "[2001:db8::1]x", "[2001:db8::1]:99999", "2001:db8::1:_x", "192.0.2.1 8.8.8.8"] {
            assert_eq!(client("10.0.0.1", "10.0.0.1", &[bad]), None, "{bad}");
        }
    }
}
