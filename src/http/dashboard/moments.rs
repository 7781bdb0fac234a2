//! The life of an event as a list of moments: what happened, and how long it waited in between.

use chrono::{DateTime, TimeDelta, Utc};

use crate::domain::action::Action;
use crate::domain::actor::ServerActor;
use crate::domain::limits::DEFAULT_LEASE_SECONDS;
use crate::domain::status::Status;
use crate::store::lists::event_life::EventLife;
use crate::store::lists::pushes::PushRow;
use crate::store::tables::event_log::LogEntry;
use crate::store::tables::refused_settlements::RefusedSettlement;

/// The number of waiting pushes that are named, if something keeps them from being sent.
const HELD_PUSHES: usize = 10;

/// Something that happened, and when.
pub(super) struct Moment<'a> {
    pub at: DateTime<Utc>,
    pub kind: Kind<'a>,
}

pub(super) enum Kind<'a> {
    Published,
    /// Nobody held it.
    Waited(Wait),
    /// A worker claimed it.
    Claimed(Claim<'a>),
    /// Any other entry about the event's own work.
    Changed(&'a LogEntry),
    /// A push was sent, or something else happened to it.
    Pushed(&'a LogEntry),
    Refused(&'a RefusedSettlement),
    /// The worker is asked to stop. Nobody wrote down when.
    CancelRequested,
    /// A push waits, because nothing is sent to its endpoint now.
    Held(&'a PushRow),
}

/// A time in which nobody held the event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Wait {
    pub from: DateTime<Utc>,
    /// `None` if it still waits.
    pub until: Option<DateTime<Utc>>,
    /// The earliest time at which it could be claimed, if there was one.
    pub due_at: Option<DateTime<Utc>>,
    /// Whether it waited for another attempt.
    pub is_retry: bool,
}

/// A claim, from its begin to its end.
pub(super) struct Claim<'a> {
    pub entry: &'a LogEntry,
    /// The length of the lease, with all extensions if that is known.
    pub lease: TimeDelta,
    pub held: TimeDelta,
    /// How it ended, or `None` if it goes on.
    pub end: Option<Action>,
    /// Whether the server took the event from the worker, because the lease had expired.
    pub has_expired: bool,
    /// When the lease ends, if the claim goes on.
    pub lease_expires_at: Option<DateTime<Utc>>,
}

/// Returns the moments of a life, the earliest first. `now` is the end of what goes on.
pub(super) fn moments(life: &EventLife, now: DateTime<Utc>) -> Vec<Moment<'_>> {
    let (event, work) = (&life.details.row.event, &life.details.row.work);
    let mut moments = vec![Moment { at: event.created_at, kind: Kind::Published }];
    let is_pulled = !event.tags.0.is_empty();
    let mut wait = (is_pulled && life.earlier == 0).then_some(Wait {
        from: event.created_at,
        until: None,
        due_at: event.run_at,
        is_retry: false,
    });
    for (at, entry) in life.entries.iter().enumerate() {
        let later = &life.entries[at + 1..];
        if entry.delivery_id.is_some() {
            // A claim of a push is the beginning of an attempt, which has an entry of its own when it ends.
            if entry.action.0 != Action::Picked || !later.iter().any(|other| ends(entry, other)) {
                moments.push(Moment { at: entry.created_at, kind: Kind::Pushed(entry) });
            }
            continue;
        }
        // What was done at once, such as a claim of a waiting worker, has not waited.
        if let Some(wait) = wait.take().filter(|wait| entry.created_at - wait.from >= TimeDelta::milliseconds(1)) {
            let until = Some(entry.created_at);
            moments.push(Moment { at: wait.from, kind: Kind::Waited(Wait { until, ..wait }) });
        }
        let kind = match entry.action.0 {
            Action::Picked => Kind::Claimed(claim(life, entry, later, now)),
            _ => Kind::Changed(entry),
        };
        moments.push(Moment { at: entry.created_at, kind });
        wait = wait_after(entry);
    }
    moments.extend(life.refused.iter().map(|row| Moment { at: row.first_at, kind: Kind::Refused(row) }));
    // The sort is stable: a wait stays behind what it follows.
    moments.sort_by_key(|moment| moment.at);
    if let Some(wait) = wait.filter(|_| work.status.0 == Status::Pending) {
        moments.push(Moment { at: now, kind: Kind::Waited(Wait { due_at: work.due_at, ..wait }) });
    }
    if work.cancel_requested && work.status.0 == Status::Processing {
        moments.push(Moment { at: now, kind: Kind::CancelRequested });
    }
    let waiting = life.pushes.iter().filter(|push| push.status.0 == Status::Pending);
    moments.extend(waiting.take(HELD_PUSHES).map(|push| Moment { at: now, kind: Kind::Held(push) }));
    moments
}

/// Returns the wait that begins with an entry, if one does.
fn wait_after(entry: &LogEntry) -> Option<Wait> {
    let waits = match entry.action.0 {
        Action::Released | Action::Reset | Action::Retried => true,
        Action::Failed => entry.next_retry_at.is_some(),
        _ => false,
    };
    waits.then_some(Wait {
        from: entry.created_at,
        until: None,
        due_at: entry.next_retry_at,
        is_retry: entry.action.0 == Action::Failed,
    })
}

fn claim<'a>(life: &EventLife, entry: &'a LogEntry, later: &[LogEntry], now: DateTime<Utc>) -> Claim<'a> {
    let work = &life.details.row.work;
    let end = later.iter().find(|other| ends(entry, other));
    let is_present = end.is_none() && work.status.0 == Status::Processing && work.lease_id == entry.lease_id;
    let lease_expires_at = work.lease_expires_at.filter(|_| is_present);
    // Of claims that were made before the log said so, the length is taken to be the default.
    let seconds = entry.lease_seconds.map_or(DEFAULT_LEASE_SECONDS as f64, f64::from);
    let lease = TimeDelta::milliseconds((seconds * 1000.0) as i64);
    Claim {
        entry,
        lease: lease_expires_at.map_or(lease, |at| at - entry.created_at),
        held: end.map_or(now, |end| end.created_at) - entry.created_at,
        end: end.map(|end| end.action.0),
        has_expired: end.is_some_and(is_expiry),
        lease_expires_at,
    }
}

/// Returns whether an entry says that a lease had expired.
fn is_expiry(entry: &LogEntry) -> bool {
    entry.action.0 == Action::Reset && entry.actor.as_deref() == Some(ServerActor::LeaseReaper.as_str())
}

/// Returns whether an entry ends the claim of another.
fn ends(claim: &LogEntry, other: &LogEntry) -> bool {
    claim.delivery_id == other.delivery_id
        && claim.lease_id == other.lease_id
        && !matches!(other.action.0, Action::Picked | Action::Started)
}

/// Returns a length of time for people: `350 ms`, `3.65 s`, `4 min 12 s`, `2 h 5 min`, `3 d 4 h`.
pub(super) fn length(time: TimeDelta) -> String {
    let milliseconds = time.num_milliseconds().max(0);
    let seconds = milliseconds / 1000;
    let two = |whole: i64, unit: &str, rest: i64, smaller: &str| match rest {
        0 => format!("{whole} {unit}"),
        rest => format!("{whole} {unit} {rest} {smaller}"),
    };
    match seconds {
        0 => format!("{milliseconds} ms"),
        1..10 => format!("{} s", (milliseconds / 10) as f64 / 100.0),
        10..60 => format!("{} s", (milliseconds / 100) as f64 / 10.0),
        60..3_600 => two(seconds / 60, "min", seconds % 60, "s"),
        3_600..86_400 => two(seconds / 3_600, "h", seconds % 3_600 / 60, "min"),
        _ => two(seconds / 86_400, "d", seconds % 86_400 / 3_600, "h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_as_exact_as_they_are_long() {
        for (milliseconds, text) in [
            (0, "0 ms"),
            (350, "350 ms"),
            (3_650, "3.65 s"),
            (5_000, "5 s"),
            (6_004, "6 s"),
            (9_999, "9.99 s"),
            (12_340, "12.3 s"),
            (252_000, "4 min 12 s"),
            (300_000, "5 min"),
            (7_500_000, "2 h 5 min"),
            (273_600_000, "3 d 4 h"),
            (-5, "0 ms"),
        ] {
            assert_eq!(length(TimeDelta::milliseconds(milliseconds)), text);
        }
    }
}
