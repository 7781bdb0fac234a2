//! Where webhooks may go. Whoever subscribes names a URL, and the server dials it from inside
//! the house: without rules that would be a way into the network around it, to the databases
//! and metadata services that trust whoever can reach them.
//!
//! The rule: an address is dialled if it is public, or if the operator listed it. Names are
//! judged by the addresses they lead to, at the moment they are dialled; see
//! `crate::webhook`, which asks [`refusal`] for every one of them.

mod allow_list;
mod ranges;
#[cfg(test)]
mod tests;
mod url;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

pub use allow_list::AllowList;
pub use url::{check_url, without_query};

use ranges::{GLOBAL_UNICAST_V6, REFUSED_V4, REFUSED_V6};

/// Why an address must not be dialled: the name of the range it lies in. `None`: it may be.
///
/// What the operator allows is matched against the address as it is written, and for
/// `::ffff:a.b.c.d` also against `a.b.c.d`, because dialling the one is dialling the other.
pub fn refusal(ip: IpAddr, allow: &AllowList) -> Option<&'static str> {
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
    let of_range = REFUSED_V6.iter().find(|(range, _)| range.contains(&ip)).map(|(_, name)| *name);
    // Whoever translates or unwraps the packet sends it on to the address inside.
    let of_embedded = || embedded_v4(ip).find_map(refusal_v4);
    let of_the_rest = || (!is_nat64(ip) && !GLOBAL_UNICAST_V6.contains(&ip)).then_some("outside global unicast");
    of_range.or_else(of_embedded).or_else(of_the_rest)
}

/// The IPv4 addresses inside, where the range carries them and may be public.
fn embedded_v4(ip: Ipv6Addr) -> impl Iterator<Item = Ipv4Addr> {
    let segments = ip.segments();
    let address_at =
        move |place: usize| Ipv4Addr::from(u32::from(segments[place]) << 16 | u32::from(segments[place + 1]));
    let is_6to4 = segments[0] == 0x2002;
    // Under any prefix: it is the interface that tells.
    let is_isatap = matches!(segments[4..6], [0 | 0x200, 0x5efe]);
    let places = [is_6to4.then_some(1), (is_isatap || is_nat64(ip)).then_some(6)];
    places.into_iter().flatten().map(address_at)
}

/// The well-known prefix of NAT64, the only range outside global unicast that is reachable.
fn is_nat64(ip: Ipv6Addr) -> bool {
    matches!(ip.segments(), [0x64, 0xff9b, 0, 0, 0, 0, _, _])
}
