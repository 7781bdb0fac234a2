//! A limit on unknown keys per client address, so that guessing costs the database nothing.
//!
//! Each address has a budget of unknown keys, which refills with time. While it is used up, a key from that address
//! that this server does not have in memory is refused without a query. A key that turns out to be known costs
//! nothing: a thousand workers behind one address may come at once after a restart.
//!
//! Somebody who mistypes keys, or guesses, would lock out everybody else behind the same address whose key is not in
//! memory. Therefore a few keys are looked up all the same ([`Reserve`]).

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The number of unknown keys that an address may send at once.
const BURST: f64 = 10.0;

/// The time after which an address may send one more unknown key.
const REFILL: Duration = Duration::from_secs(6);

/// The number of keys that are looked up for addresses whose budgets are used up, for all of them together. It refills
/// as a budget does.
const RESERVE: f64 = 5.0;

/// The maximum number of addresses that are remembered. Further ones share the budgets of [`BUCKETS`].
const MAX_ADDRESSES: usize = 10_000;

/// The number of budgets that further addresses share. Which one an address has depends on its network and on a random
/// number of this server, so that whoever fills the table with the addresses of one network does not lock out others.
const BUCKETS: u64 = 1_024;

/// The budgets of all addresses that sent unknown keys lately.
#[derive(Default)]
pub(crate) struct Guesses {
    budgets: Mutex<HashMap<Owner, Budget>>,
    seed: RandomState,
}

/// The owner of a budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Owner {
    /// `None` for connections without an address.
    Address(Option<IpAddr>),
    Bucket(u64),
}

/// A number of tries that refills with time.
pub(super) struct Budget {
    burst: f64,
    left: f64,
    at: Instant,
}

impl Budget {
    /// Returns a budget of `burst` tries, none of which was taken.
    pub(super) fn full(burst: f64, now: Instant) -> Self {
        Budget { burst, left: burst, at: now }
    }

    pub(super) fn is_full(&mut self, now: Instant) -> bool {
        self.refill(now);
        self.left >= self.burst
    }

    /// Takes one try, or returns the time to wait for it.
    pub(super) fn take(&mut self, now: Instant) -> Option<Duration> {
        let wait = self.wait(now);
        if wait.is_none() {
            self.left -= 1.0;
        }
        wait
    }

    /// Returns the time to wait until there is a try, or `None` if there is one.
    fn wait(&mut self, now: Instant) -> Option<Duration> {
        self.refill(now);
        (self.left < 1.0).then(|| REFILL.mul_f64(1.0 - self.left))
    }

    fn refill(&mut self, now: Instant) {
        let gained = now.saturating_duration_since(self.at).as_secs_f64() / REFILL.as_secs_f64();
        (self.left, self.at) = ((self.left + gained).min(self.burst), now);
    }
}

/// The look-ups that are left for all addresses whose budgets are used up.
#[derive(Default)]
pub(super) struct Reserve(Mutex<Option<Budget>>);

impl Reserve {
    /// Takes a look-up. Returns `false` if there is none.
    pub(super) fn take(&self, now: Instant) -> bool {
        let mut budget = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        budget.get_or_insert_with(|| Budget::full(RESERVE, now)).take(now).is_none()
    }
}

impl Guesses {
    /// Returns the time to wait before an address may try another unknown key, or `None` if it may now.
    pub(crate) fn wait(&self, address: Option<IpAddr>, now: Instant) -> Option<Duration> {
        let mut budgets = self.budgets.lock().unwrap_or_else(PoisonError::into_inner);
        let owner = self.owner(&budgets, address);
        budgets.get_mut(&owner)?.wait(now)
    }

    /// Takes one unknown key from the budget of an address.
    pub(crate) fn note(&self, address: Option<IpAddr>, now: Instant) {
        let mut budgets = self.budgets.lock().unwrap_or_else(PoisonError::into_inner);
        if budgets.len() >= MAX_ADDRESSES {
            budgets.retain(|_, budget| !budget.is_full(now));
        }
        let owner = self.owner(&budgets, address);
        let budget = budgets.entry(owner).or_insert_with(|| Budget::full(BURST, now));
        budget.refill(now);
        budget.left = (budget.left - 1.0).max(0.0);
    }

    /// Returns the owner of the budget of an address: itself, or a bucket when too many are remembered.
    fn owner(&self, budgets: &HashMap<Owner, Budget>, address: Option<IpAddr>) -> Owner {
        let listed = Owner::Address(network_of(address));
        if budgets.len() < MAX_ADDRESSES || budgets.contains_key(&listed) {
            return listed;
        }
        Owner::Bucket(self.seed.hash_one(site_of(address)) % BUCKETS)
    }
}

/// Returns the network that one customer of a provider usually has: a /48 of IPv6, or an address of IPv4.
fn site_of(address: Option<IpAddr>) -> Option<IpAddr> {
    Some(match address?.to_canonical() {
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() >> 80 << 80)),
        v4 @ IpAddr::V4(_) => v4,
    })
}

/// Returns the network that counts as one address: one host usually has a whole /64 of IPv6.
pub(crate) fn network_of(address: Option<IpAddr>) -> Option<IpAddr> {
    Some(match address?.to_canonical() {
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & !u128::from(u64::MAX))),
        v4 @ IpAddr::V4(_) => v4,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> Option<IpAddr> {
        text.parse().ok()
    }

    #[test]
    fn an_address_that_guesses_has_to_wait_and_others_do_not() {
        let (guesses, now) = (Guesses::default(), Instant::now());
        for _ in 0..10 {
            assert_eq!(guesses.wait(address("192.0.2.1"), now), None);
            guesses.note(address("192.0.2.1"), now);
        }
        assert_eq!(guesses.wait(address("192.0.2.1"), now), Some(REFILL));
        assert_eq!(guesses.wait(address("::ffff:192.0.2.1"), now), Some(REFILL));
        assert_eq!(guesses.wait(address("192.0.2.2"), now), None);
        assert_eq!(guesses.wait(address("192.0.2.1"), now + REFILL), None);
    }

    #[test]
    fn the_reserve_is_small_and_refills() {
        let (reserve, now) = (Reserve::default(), Instant::now());
        assert_eq!((0..10).filter(|_| reserve.take(now)).count(), 5);
        assert!(reserve.take(now + REFILL) && !reserve.take(now + REFILL));
    }

    #[test]
    fn a_network_of_ipv6_counts_as_one_address() {
        let (guesses, now) = (Guesses::default(), Instant::now());
        for host in 1..=10 {
            guesses.note(address(&format!("2001:db8::{host}")), now);
        }
        assert!(guesses.wait(address("2001:db8::77"), now).is_some());
        assert_eq!(guesses.wait(address("2001:db8:0:1::1"), now), None);
    }

    #[test]
    fn addresses_are_bounded_and_forgotten_when_they_have_recovered() {
        let (guesses, now) = (Guesses::default(), Instant::now());
        for number in 0..(MAX_ADDRESSES as u32 * 2) {
            guesses.note(Some(IpAddr::V4((0x0a00_0000 + number).into())), now);
        }
        let remembered = guesses.budgets.lock().unwrap().len();
        assert!(remembered > MAX_ADDRESSES && remembered <= MAX_ADDRESSES + BUCKETS as usize, "{remembered}");
        guesses.note(address("192.0.2.1"), now + Duration::from_secs(600));
        assert_eq!(guesses.budgets.lock().unwrap().len(), 1);
    }

    #[test]
    fn who_fills_the_table_with_a_network_of_ipv6_does_not_lock_out_others() {
        let (guesses, now) = (Guesses::default(), Instant::now());
        let of_attacker = |number: u128| Some(IpAddr::V6(Ipv6Addr::from_bits(0x2001_0db8_0001 << 80 | number << 64)));
        for number in 0..(MAX_ADDRESSES as u128 + 100) {
            guesses.note(of_attacker(number), now);
        }
        assert!(guesses.wait(of_attacker(60_000), now).is_some(), "its other addresses share a budget");
        let others = (0..100u32).map(|number| Some(IpAddr::V4((0xc633_6400 + number).into())));
        let refused = others.filter(|other| guesses.wait(*other, now).is_some()).count();
        assert!(refused < 5, "{refused} of 100 have the bucket of the attacker by chance");
    }
}
