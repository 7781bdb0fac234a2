//! Refused calls, counted in memory until they are recorded in the audit log.
//!
//! A caller that guesses keys must cost the database nothing per call, so there is one entry per minute for all
//! calls with the same actor, address and reason. Whoever calls from many addresses is counted by reason alone, and
//! does not hide what the holders of keys were refused: those have a share of their own.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use chrono::{DateTime, SecondsFormat, Utc};
use serde_json::json;

use crate::domain::audit::{AuditAction, AuditEntry};
use crate::domain::ids::NamespaceId;
use crate::domain::scope::Scope;
use crate::error::{Error, OutageKind};
use crate::store::tables::audit_log::record_all;

use crate::engine::Engine;
use crate::engine::keys::network_of;

/// The number of different kinds of refused calls of unknown callers that are counted between two writes. Calls of
/// further kinds are counted by reason alone.
const MAX_KINDS: usize = 100;

/// The same for the calls of holders of keys.
const MAX_NAMED_KINDS: usize = 100;

/// What refused calls have in common that are counted together.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RefusedCall {
    /// The namespace of the caller's key, or the default one if the key is unknown.
    pub namespace: NamespaceId,
    /// The name of the caller's key, if it is known.
    pub actor: Option<Arc<str>>,
    /// Of IPv6, its network: one host usually has a whole /64.
    pub address: Option<IpAddr>,
    /// The code of the problem that the caller got.
    pub reason: &'static str,
}

#[derive(Debug, Clone, Copy)]
struct Counted {
    calls: u64,
    /// The time of the first of them.
    since: DateTime<Utc>,
}

/// The refused calls since they were last recorded.
#[derive(Default)]
pub struct RefusedCalls {
    counted: Mutex<Kinds>,
}

#[derive(Default)]
struct Kinds {
    /// Those with an actor.
    named: HashMap<RefusedCall, Counted>,
    unnamed: HashMap<RefusedCall, Counted>,
}

impl RefusedCalls {
    /// Counts a call that was refused.
    pub fn note(&self, call: RefusedCall, now: DateTime<Utc>) {
        let call = RefusedCall { address: network_of(call.address), ..call };
        self.lock().add(call, Counted { calls: 1, since: now });
    }

    fn take(&self) -> Vec<(RefusedCall, Counted)> {
        let Kinds { named, unnamed } = std::mem::take(&mut *self.lock());
        named.into_iter().chain(unnamed).collect()
    }

    fn put_back(&self, calls: Vec<(RefusedCall, Counted)>) {
        let mut counted = self.lock();
        for (call, count) in calls {
            counted.add(call, count);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Kinds> {
        self.counted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kinds {
    /// Adds to the count of a kind. There are few reasons, so those of calls that are counted by reason alone are
    /// always counted.
    fn add(&mut self, call: RefusedCall, more: Counted) {
        let (kinds, limit) = match call.actor {
            Some(_) => (&mut self.named, MAX_NAMED_KINDS),
            None => (&mut self.unnamed, MAX_KINDS),
        };
        let known = match kinds.len() < limit || kinds.contains_key(&call) {
            true => kinds.entry(call),
            false => self.unnamed.entry(RefusedCall::of_reason(call.reason)),
        };
        let known = known.or_insert(Counted { calls: 0, since: more.since });
        known.calls += more.calls;
        known.since = known.since.min(more.since);
    }
}

impl RefusedCall {
    /// Returns the kind of all calls that are counted by reason alone.
    fn of_reason(reason: &'static str) -> Self {
        RefusedCall { namespace: NamespaceId::DEFAULT, actor: None, address: None, reason }
    }
}

impl Engine {
    /// Records the refused calls since the last call. Returns the number of entries. If the database has not stored them,
    /// the counts are kept for the next call. If it may have, they are not: they would be counted twice.
    pub async fn record_refused_calls(&self) -> Result<usize, Error> {
        let calls = self.refused_calls().take();
        let recorded = self.write_refused_calls(&calls).await;
        match recorded {
            Ok(()) => Ok(calls.len()),
            Err(error) => {
                if !may_be_stored(&error) {
                    self.refused_calls().put_back(calls);
                }
                Err(error)
            }
        }
    }

    async fn write_refused_calls(&self, calls: &[(RefusedCall, Counted)]) -> Result<(), Error> {
        if calls.is_empty() {
            return Ok(());
        }
        let entries: Vec<(Scope, AuditEntry)> = calls.iter().map(|(call, count)| self.entry_of(call, *count)).collect();
        let entries: Vec<(&Scope, &AuditEntry)> = entries.iter().map(|(scope, entry)| (scope, entry)).collect();
        let mut conn = self.database().connection().await?;
        Ok(record_all(&mut conn, self.now(), &entries).await?)
    }

    fn entry_of(&self, call: &RefusedCall, count: Counted) -> (Scope, AuditEntry) {
        let scope = Scope {
            actor: call.actor.as_deref().map(Into::into),
            address: call.address,
            ..Scope::new(call.namespace, self.now())
        };
        let since = count.since.to_rfc3339_opts(SecondsFormat::Micros, true);
        let detail = json!({"reason": call.reason, "calls": count.calls, "since": since});
        let detail = detail.as_object().cloned().unwrap_or_default();
        (scope, AuditEntry { action: AuditAction::CallsRefused, subject_id: None, detail })
    }
}

/// Returns whether a statement with its own commit may have been committed although it failed.
fn may_be_stored(error: &Error) -> bool {
    matches!(error, Error::OutcomeUnknown(_)) || error.is_outage(OutageKind::Lost)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn call(address: u32, reason: &'static str) -> RefusedCall {
        let address = Some(Ipv4Addr::from_bits(address).into());
        RefusedCall { namespace: NamespaceId::DEFAULT, actor: None, address, reason }
    }

    #[test]
    fn only_what_is_certainly_not_stored_is_counted_again() {
        assert!(
            may_be_stored(&Error::outage(OutageKind::Lost, "")) && may_be_stored(&Error::OutcomeUnknown(String::new()))
        );
        for kind in [OutageKind::Unreachable, OutageKind::TooSlow, OutageKind::ReadOnly, OutageKind::DiskFull] {
            assert!(!may_be_stored(&Error::outage(kind, "")), "{kind:?}");
        }
    }

    #[test]
    fn memory_is_bounded_however_many_addresses_call() {
        let calls = RefusedCalls::default();
        for address in 0..10_000 {
            for reason in ["unauthenticated", "key_revoked"] {
                calls.note(call(address, reason), Utc::now());
            }
        }
        let taken = calls.take();
        assert_eq!(taken.len(), MAX_KINDS + 2);
        assert_eq!(taken.iter().map(|(_, count)| count.calls).sum::<u64>(), 20_000, "none is lost");
        assert_eq!(taken.iter().filter(|(call, _)| call.address.is_none()).count(), 2);
    }

    #[test]
    fn unknown_callers_do_not_hide_what_holders_of_keys_were_refused_and_those_are_bounded_too() {
        let calls = RefusedCalls::default();
        for address in 0..1_000 {
            calls.note(call(address, "unauthenticated"), Utc::now());
        }
        for address in 0..1_000 {
            calls.note(RefusedCall { actor: Some("ann".into()), ..call(address, "scope_missing") }, Utc::now());
        }
        let taken = calls.take();
        let named = taken.iter().filter(|(call, _)| call.actor.is_some());
        assert_eq!((named.count(), taken.len()), (MAX_NAMED_KINDS, MAX_NAMED_KINDS + MAX_KINDS + 2));
        assert_eq!(taken.iter().map(|(_, count)| count.calls).sum::<u64>(), 2_000, "none is lost");
    }

    #[test]
    fn a_network_of_ipv6_counts_as_one_address() {
        let calls = RefusedCalls::default();
        for address in ["2001:db8::1", "2001:db8::2", "2001:db8:0:1::1"] {
            let address = address.parse().ok();
            calls.note(RefusedCall { address, ..call(0, "unauthenticated") }, Utc::now());
        }
        let mut counts: Vec<u64> = calls.take().iter().map(|(_, count)| count.calls).collect();
        counts.sort_unstable();
        assert_eq!(counts, [1, 2]);
    }

    #[test]
    fn counts_that_were_not_written_are_added_to_later_ones() {
        let calls = RefusedCalls::default();
        let first = Utc::now();
        calls.note(call(1, "unauthenticated"), first);
        let taken = calls.take();
        calls.note(call(1, "unauthenticated"), first + chrono::TimeDelta::seconds(5));
        calls.put_back(taken);
        let taken = calls.take();
        assert_eq!(taken.len(), 1);
        assert_eq!((taken[0].1.calls, taken[0].1.since), (2, first));
        assert!(calls.take().is_empty());
    }
}
