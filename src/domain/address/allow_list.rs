//! The networks that webhooks may be sent to although they are not public.

use std::net::IpAddr;
use std::str::FromStr;

use ipnet::IpNet;

/// The networks that the operator allows as webhook targets. Empty by default.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AllowList(Vec<IpNet>);

impl AllowList {
    /// Returns whether the address is in one of the networks. An IPv4-mapped IPv6 address is not
    /// converted to IPv4.
    pub fn contains(&self, ip: IpAddr) -> bool {
        self.0.iter().any(|network| network.contains(&ip))
    }
}

impl FromStr for AllowList {
    type Err = String;

    /// Parses a comma-separated list: `10.1.0.0/16, 192.168.7.3, fd12::/32`. Empty text allows nothing.
    fn from_str(text: &str) -> Result<Self, String> {
        let entries = text.split(',').map(str::trim).filter(|entry| !entry.is_empty());
        entries.map(parse_network).collect::<Result<_, _>>().map(Self)
    }
}

fn parse_network(entry: &str) -> Result<IpNet, String> {
    let network = entry.parse().or_else(|_| entry.parse().map(IpAddr::into));
    network.map_err(|_| format!("{entry} is not a network such as 10.1.0.0/16, nor an address"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_and_single_addresses_are_parsed() {
        let allow: AllowList = " 10.1.0.0/16,192.168.7.3 , fd12::/32, ::1".parse().unwrap();
        for inside in ["10.1.255.1", "192.168.7.3", "fd12::9", "::1"] {
            assert!(allow.contains(inside.parse().unwrap()), "{inside}");
        }
        for outside in ["10.2.0.0", "192.168.7.4", "fd13::", "::2", "::ffff:10.1.0.1"] {
            assert!(!allow.contains(outside.parse().unwrap()), "{outside}");
        }
    }

    #[test]
    fn empty_text_allows_nothing_and_invalid_text_is_refused() {
        assert_eq!("".parse(), Ok(AllowList::default()));
        assert_eq!(" , ".parse(), Ok(AllowList::default()));
        for bad in ["localhost", "10.0.0.0/33", "10.0.0", "10.0.0.0/8;::1"] {
            assert!(bad.parse::<AllowList>().unwrap_err().contains(bad));
        }
    }
}
