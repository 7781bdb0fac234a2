//! Tests of the rule against the complete registries. The ranges are repeated here in the order and
//! spelling of the registries, so a mistake in one of the two lists makes a test fail.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use proptest::prelude::*;

use super::{AllowList, refusal};

const V4: &[&str] = &[
    "0.0.0.0/8",
    "0.0.0.0/32",
    "10.0.0.0/8",
    "100.64.0.0/10",
    "127.0.0.0/8",
    "169.254.0.0/16",
    "169.254.169.254/32",
    "172.16.0.0/12",
    "192.0.0.0/24",
    "192.0.0.0/29",
    "192.0.0.8/32",
    "192.0.0.9/32",
    "192.0.0.10/32",
    "192.0.0.170/32",
    "192.0.0.171/32",
    "192.0.2.0/24",
    "192.88.99.0/24",
    "192.168.0.0/16",
    "198.18.0.0/15",
    "198.51.100.0/24",
    "203.0.113.0/24",
    "224.0.0.0/4",
    "240.0.0.0/4",
    "255.255.255.255/32",
];

const V6: &[&str] = &[
    "::1/128",
    "::/128",
    "::/96",
    "::ffff:0:0:0/96",
    "64:ff9b:1::/48",
    "100::/64",
    "100:0:0:1::/64",
    "2001::/23",
    "2001::/32",
    "2001:1::1/128",
    "2001:1::2/128",
    "2001:1::3/128",
    "2001:2::/48",
    "2001:3::/32",
    "2001:4:112::/48",
    "2001:10::/28",
    "2001:20::/28",
    "2001:30::/28",
    "2001:db8::/32",
    "3fff::/20",
    "5f00::/16",
    "fc00::/7",
    "fd00:ec2::254/128",
    "fe80::/10",
    "fec0::/10",
    "ff00::/8",
    // Unassigned.
    "200::/7",
    "400::/6",
    "4000::/3",
    "8000::/1",
];

/// Public addresses, including some in registered ranges that are globally reachable.
const PUBLIC: &[&str] = &[
    "1.1.1.1",
    "8.8.8.8",
    "93.184.215.14",
    "192.31.196.1",
    "192.52.193.1",
    "192.175.48.1",
    "2001:200::1",
    "2001:4860:4860::8888",
    "2606:4700:4700::1111",
    "2620:4f:8000::1",
    "2a00:1450::1",
    "64:ff9b::8.8.8.8",
    "2002:808:808::1",
    "::ffff:8.8.8.8",
    "2a00:1450::5efe:808:808",
];

fn refused(ip: IpAddr) -> bool {
    refusal(ip, &AllowList::default()).is_some()
}

fn networks(texts: &[&str]) -> Vec<IpNet> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn any_inside(network: IpNet, random: u128) -> IpAddr {
    match network {
        IpNet::V4(net) => Ipv4Addr::from(u32::from(net.network()) | random as u32 & u32::from(net.hostmask())).into(),
        IpNet::V6(net) => Ipv6Addr::from(u128::from(net.network()) | random & u128::from(net.hostmask())).into(),
    }
}

/// Returns the addresses directly before and after a network.
fn neighbours(network: IpNet) -> Vec<IpAddr> {
    match network {
        IpNet::V4(net) => {
            let (first, last) = (u32::from(net.network()), u32::from(net.broadcast()));
            let around = [first.checked_sub(1), last.checked_add(1)];
            around.into_iter().flatten().map(|ip| Ipv4Addr::from(ip).into()).collect()
        }
        IpNet::V6(net) => {
            let (first, last) = (u128::from(net.network()), u128::from(net.broadcast()));
            let around = [first.checked_sub(1), last.checked_add(1)];
            around.into_iter().flatten().map(|ip| Ipv6Addr::from(ip).into()).collect()
        }
    }
}

/// Returns IPv6 addresses that embed an IPv4 address, one for every known embedding.
fn embeddings(ip: Ipv4Addr, prefix: u64) -> Vec<Ipv6Addr> {
    let low = u128::from(u32::from(ip));
    let global = u128::from(prefix >> 3 | 1 << 61) << 64;
    [
        low,
        0xffff << 32 | low,
        0xffff << 48 | low,
        0x64_ff9b << 96 | low,
        0x64_ff9b_0001 << 80 | low,
        0x2002 << 112 | low << 80 | u128::from(prefix),
        0x2001 << 112 | low << 64,
        0x2001 << 112 | u128::from(!u32::from(ip)),
        0xfe80 << 112 | 0x5efe << 32 | low,
        global | 0x5efe << 32 | low,
        global | 0x200_5efe << 32 | low,
        // Two embedded addresses at once; the outer one is public.
        0x2002_0808_0808 << 80 | 0x5efe << 32 | low,
    ]
    .map(Ipv6Addr::from)
    .into()
}

#[test]
fn both_ends_of_every_range_are_refused_and_its_public_neighbours_are_not() {
    let ranges = networks(&[V4, V6].concat());
    let special = |ip: &IpAddr| ranges.iter().any(|range| range.contains(ip));
    // In these ranges the embedded IPv4 address decides.
    let embedding = networks(&["::ffff:0:0/96", "64:ff9b::/96", "2002::/16"]);
    let mut accepted = 0;
    for range in &ranges {
        assert!(refused(range.network()), "{range}");
        assert!(refused(range.broadcast()), "{range}");
        for neighbour in neighbours(*range) {
            let is_public = match neighbour {
                IpAddr::V4(_) => !special(&neighbour),
                IpAddr::V6(ip) => is_global_unicast(ip) && !special(&neighbour),
            };
            if embedding.iter().all(|range| !range.contains(&neighbour)) {
                assert_eq!(refused(neighbour), !is_public, "{neighbour}, next to {range}");
                accepted += usize::from(is_public);
            }
        }
    }
    assert!(accepted > 25, "only {accepted} neighbours are public");
}

fn is_global_unicast(ip: Ipv6Addr) -> bool {
    ip.segments()[0] >> 13 == 1
}

#[test]
fn public_addresses_are_accepted() {
    for ip in PUBLIC {
        assert!(!refused(ip.parse().unwrap()), "{ip}");
    }
}

#[test]
fn a_refusal_names_the_range() {
    for (ip, name) in [
        ("169.254.169.254", "link-local"),
        ("10.1.2.3", "private use"),
        ("255.255.255.255", "broadcast"),
        ("::1", "loopback"),
        ("::ffff:127.0.0.1", "loopback"),
        ("64:ff9b::10.0.0.1", "private use"),
        ("fd00:ec2::254", "unique local"),
        ("2001::1", "Teredo"),
        ("1234::1", "outside global unicast"),
    ] {
        assert_eq!(refusal(ip.parse().unwrap(), &AllowList::default()), Some(name), "{ip}");
    }
}

#[test]
fn an_allowed_ipv4_address_is_also_allowed_mapped_but_in_no_other_embedding() {
    let allow: AllowList = "10.0.0.0/8".parse().unwrap();
    let embeddings = embeddings(Ipv4Addr::new(10, 1, 2, 3), 0);
    let accepted: Vec<_> = embeddings.iter().filter(|ip| refusal((**ip).into(), &allow).is_none()).collect();
    assert_eq!(accepted, [&"::ffff:10.1.2.3".parse::<Ipv6Addr>().unwrap()]);
    assert_eq!(refusal("10.1.2.3".parse().unwrap(), &allow), None);
    assert!(refusal("11.1.2.3".parse().unwrap(), &allow).is_none());
    assert!(refusal("192.168.0.1".parse().unwrap(), &allow).is_some());
}

proptest! {
    #[test]
    fn everything_inside_a_special_range_is_refused(random: u128) {
        for range in networks(&[V4, V6].concat()) {
            let ip = any_inside(range, random);
            prop_assert!(refused(ip), "{ip} in {range}");
        }
    }

    #[test]
    fn ipv4_outside_the_special_ranges_is_accepted(random: u32) {
        let ip = Ipv4Addr::from(random);
        let is_special = V4.iter().any(|range| range.parse::<Ipv4Net>().unwrap().contains(&ip));
        prop_assert_eq!(refused(ip.into()), is_special, "{}", ip);
    }

    #[test]
    fn ipv6_outside_global_unicast_is_refused(random: u128) {
        let ip = Ipv6Addr::from(random);
        prop_assert!(is_global_unicast(ip) || refused(ip.into()), "{ip}");
    }

    #[test]
    fn ipv6_allocated_by_regional_registries_is_accepted(random: u128) {
        for allocated in ["2001:4000::/23", "2400::/12", "2600::/12", "2800::/12", "2a00::/12", "2c00::/12"] {
            let ip = any_inside(IpNet::V6(allocated.parse::<Ipv6Net>().unwrap()), random);
            prop_assert!(!refused(ip), "{ip}");
        }
    }

    #[test]
    fn a_refused_ipv4_address_is_refused_in_every_embedding(random: u32, prefix: u64) {
        for range in networks(V4) {
            let IpAddr::V4(ip) = any_inside(range, u128::from(random)) else { unreachable!() };
            for embedding in embeddings(ip, prefix) {
                prop_assert!(refused(embedding.into()), "{embedding} embeds {ip}");
            }
        }
    }

    #[test]
    fn a_mapped_address_is_judged_like_its_ipv4_address(random: u32) {
        let ip = Ipv4Addr::from(random);
        prop_assert_eq!(refused(ip.to_ipv6_mapped().into()), refused(ip.into()), "{}", ip);
    }
}
