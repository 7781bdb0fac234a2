//! Which addresses webhooks may be sent to.
//!
//! A subscriber chooses a URL, and the server connects to it from inside its own network. Without
//! rules, a subscriber could reach internal services that trust any caller on that network, such as
//! databases and cloud metadata services.
//!
//! The rule: an address may be used if it is public or if the operator allows it. A host name is
//! checked by the addresses that it resolves to, when the connection is made: `crate::webhook` calls
//! [`refusal`] for each of them.

mod allow_list;
mod ranges;
#[cfg(test)]
mod tests;
mod url;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

pub(crate) use allow_list::AllowList;
pub(crate) use url::{check_syntax, check_url, masked};

use ranges::{GLOBAL_UNICAST_V6, REFUSED_V4, REFUSED_V6};

/// Returns the name of the refused range that contains an address, or `None` if the address may be
/// used.
///
/// The allow list is matched against the address itself. For `::ffff:a.b.c.d` it is also matched
/// against `a.b.c.d`, because both reach the same host.
pub(crate) fn refusal(ip: IpAddr, allow: &AllowList) -> Option<&'static str> {
    if allow.contains(ip) || allow.contains(ip.to_canonical()) {
        return None;
    }
    match ip.to_canonical() {
        IpAddr::V4(ip) => refusal_v4(ip),
        IpAddr::V6(ip) => refusal_v6(ip),
    }
}

fn refusal_v4(ip: Ipv4Addr) -> Option<&'static str> {
    REFUSED_V4.iter().find(|(range, _)| range.contains(&ip)).map(|(_, name)| *name)
}

fn refusal_v6(ip: Ipv6Addr) -> Option<&'static str> {
    let listed = REFUSED_V6.iter().find(|(range, _)| range.contains(&ip)).map(|(_, name)| *name);
    // A gateway that translates or unwraps the packet forwards it to the embedded address.
    let embedded = || embedded_v4(ip).find_map(refusal_v4);
    let unlisted = || (!is_nat64(ip) && !GLOBAL_UNICAST_V6.contains(&ip)).then_some("outside global unicast");
    listed.or_else(embedded).or_else(unlisted)
}

/// Returns the IPv4 addresses embedded in a 6to4, ISATAP or NAT64 address.
fn embedded_v4(ip: Ipv6Addr) -> impl Iterator<Item = Ipv4Addr> {
    let segments = ip.segments();
    let address_at =
        move |position: usize| Ipv4Addr::from(u32::from(segments[position]) << 16 | u32::from(segments[position + 1]));
    let is_6to4 = segments[0] == 0x2002;
    // ISATAP can have any prefix; only the interface identifier shows it.
    let is_isatap = matches!(segments[4..6], [0 | 0x200, 0x5efe]);
    let positions = [is_6to4.then_some(1), (is_isatap || is_nat64(ip)).then_some(6)];
    positions.into_iter().flatten().map(address_at)
}

/// Returns whether an address has the well-known prefix of NAT64, the only range outside global
/// unicast that is reachable.
fn is_nat64(ip: Ipv6Addr) -> bool {
    matches!(ip.segments(), [0x64, 0xff9b, 0, 0, 0, 0, _, _])
}
