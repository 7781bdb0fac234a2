//! Limits the number of connections that one address may have open.
//!
//! Without it, one client could take all connections of `--max-connections`. Loopback and trusted proxies
//! are exempt: what comes from there is many clients. Addresses of IPv6 count by their /64, which is what
//! one host usually gets. The table has an entry for each address with an open connection.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::domain::trusted_proxies::TrustedProxies;

/// The time between two log lines about refused connections.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// The open connections by address, of all threads.
#[derive(Clone)]
pub(crate) struct ConnectionLimit(Arc<Shared>);

struct Shared {
    limit: usize,
    exempt: TrustedProxies,
    open: Mutex<HashMap<IpAddr, usize>>,
    refused: Mutex<Refused>,
}

/// The connections that were refused since the last log line.
#[derive(Default)]
struct Refused {
    count: u64,
    logged_at: Option<Instant>,
}

/// An open connection. It is no longer counted when this is dropped.
pub(crate) struct CountedConnection {
    shared: Arc<Shared>,
    /// `None` for an address that is exempt.
    counted_as: Option<IpAddr>,
}

impl ConnectionLimit {
    /// Allows `limit` connections per address; 0 allows any number.
    pub(crate) fn new(limit: usize, exempt: TrustedProxies) -> Self {
        ConnectionLimit(Arc::new(Shared { limit, exempt, open: Mutex::default(), refused: Mutex::default() }))
    }

    /// Counts a connection. Returns `None` if its address has the maximum number open, and logs that.
    pub(crate) fn admit(&self, peer: IpAddr) -> Option<CountedConnection> {
        let counted_as = self.counted_as(peer);
        if let Some(address) = counted_as
            && !self.0.add(address)
        {
            self.0.log_refusal(address);
            return None;
        }
        Some(CountedConnection { shared: self.0.clone(), counted_as })
    }

    /// Returns the address under which a connection is counted, or `None` if it is exempt.
    fn counted_as(&self, peer: IpAddr) -> Option<IpAddr> {
        let peer = peer.to_canonical();
        if self.0.limit == 0 || peer.is_loopback() || self.0.exempt.contains(peer) {
            return None;
        }
        Some(match peer {
            IpAddr::V4(_) => peer,
            IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        })
    }
}

impl Shared {
    /// Counts a connection. Returns false if the maximum is reached.
    fn add(&self, address: IpAddr) -> bool {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let count = open.entry(address).or_default();
        let is_allowed = *count < self.limit;
        *count += usize::from(is_allowed);
        is_allowed
    }

    fn remove(&self, address: IpAddr) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Entry::Occupied(mut count) = open.entry(address) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }

    /// Logs refused connections, at most once per [`LOG_INTERVAL`].
    fn log_refusal(&self, address: IpAddr) {
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        refused.count += 1;
        if refused.logged_at.is_none_or(|at| at.elapsed() >= LOG_INTERVAL) {
            log::warn!(
                client:% = address, refused = refused.count, limit = self.limit;
                "an address has too many open connections (--max-connections-per-address)"
            );
            *refused = Refused { count: 0, logged_at: Some(Instant::now()) };
        }
    }
}

impl Drop for CountedConnection {
    fn drop(&mut self) {
        if let Some(address) = self.counted_as {
            self.shared.remove(address);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn an_address_gets_as_many_connections_as_the_limit_allows_and_others_are_not_affected() {
        let limit = ConnectionLimit::new(2, TrustedProxies::default());
        let one = address("192.0.2.1");
        let first = limit.admit(one).unwrap();
        let _second = limit.admit(address("::ffff:192.0.2.1")).unwrap();
        assert!(limit.admit(one).is_none());
        let other = limit.admit(address("192.0.2.2")).unwrap();
        drop(first);
        let _third = limit.admit(one).unwrap();
        assert!(limit.admit(one).is_none());
        drop(other);
        assert_eq!(limit.0.open.lock().unwrap().len(), 1, "closed connections leave nothing behind");
    }

    #[test]
    fn addresses_of_ipv6_count_by_their_network() {
        let limit = ConnectionLimit::new(1, TrustedProxies::default());
        let _one = limit.admit(address("2001:db8:0:1::1")).unwrap();
        assert!(limit.admit(address("2001:db8:0:1:ffff::2")).is_none());
        assert!(limit.admit(address("2001:db8:0:2::1")).is_some());
    }

    #[test]
    fn loopback_trusted_proxies_and_a_limit_of_0_are_exempt() {
        let limit = ConnectionLimit::new(1, "10.0.0.0/8".parse().unwrap());
        for exempt in ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1", "10.1.2.3", "::ffff:10.1.2.3"] {
            let open: Vec<_> = (0..3).map(|_| limit.admit(address(exempt))).collect();
            assert!(open.iter().all(Option::is_some), "{exempt}");
        }
        let limit = ConnectionLimit::new(0, TrustedProxies::default());
        let open: Vec<_> = (0..3).map(|_| limit.admit(address("192.0.2.1"))).collect();
        assert!(open.iter().all(Option::is_some));
    }
}
