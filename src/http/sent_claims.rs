//! Claims whose responses are on their way, and the decision whether they arrived.
//!
//! Each connection has one [`SentClaims`]. A response that carries a claim adds the claim to
//! it; the connection reports what it writes and what happens to it. A claim is undone exactly
//! if the client cannot have the response: if the connection ended before the client's kernel
//! acknowledged all of its bytes, or if the client reset the connection shortly after, as a
//! kernel does for a process that ends without having read what it received. A client that
//! reads its response and closes the connection keeps its claim: its kernel acknowledges all
//! bytes no later than with the packet that closes.
//!
//! Nothing is polled for this. A connection that is kept open hears of the next request, of
//! the close or of the reset anyway; see [`super::client_socket`] for one that the server closes.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use super::tcp_info::TcpInfo;
use crate::engine::claim::SentClaim;

/// How long after the last acknowledgement a reset still means that the client has not read
/// its response. A client that lives reads within milliseconds. Proxies and firewalls that
/// reset idle connections, whose clients have long read, wait for longer than this.
const UNREAD_FOR: Duration = Duration::from_secs(5);

/// How long a connection that the server closes waits for the client to close it, too, or to
/// reset it, once all bytes are acknowledged.
const CLOSES_WITHIN: Duration = Duration::from_secs(1);

/// What happened to a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Incident {
    /// The client sent something.
    Received,
    /// The client closed its side.
    Closed,
    /// Reading or writing failed: the client reset the connection, or cannot be reached.
    Failed,
    /// The server has closed its side, and nothing else happened for a while.
    Quiet,
    /// The server gives the connection up.
    GivenUp,
}

/// What has become of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// The client has it, or may have it.
    Delivered,
    /// The client cannot have it.
    Lost,
    /// It is on its way.
    Undecided,
}

/// The claims that were sent over one connection and are not known to have arrived.
#[derive(Default)]
pub struct SentClaims {
    unconfirmed: RefCell<Vec<Unconfirmed>>,
    written: Cell<u64>,
    is_closed_by_client: Cell<bool>,
}

struct Unconfirmed {
    claim: SentClaim,
    /// The number of the response's last byte on the connection, once that is known.
    end: Option<u64>,
}

impl SentClaims {
    /// Adds a claim whose response is in the bytes that are written next.
    pub fn add(&self, claim: SentClaim) {
        self.unconfirmed.borrow_mut().push(Unconfirmed { claim, end: None });
    }

    /// Returns whether every claim has been decided on.
    pub fn is_empty(&self) -> bool {
        self.unconfirmed.borrow().is_empty()
    }

    /// Returns whether the client has closed its side.
    pub fn is_closed_by_client(&self) -> bool {
        self.is_closed_by_client.get()
    }

    /// Notes that `bytes` are about to be written, all that the server has for the client.
    pub fn before_write(&self, bytes: usize) {
        let end = self.written.get() + bytes as u64;
        self.unconfirmed.borrow_mut().iter_mut().for_each(|sent| sent.end = sent.end.or(Some(end)));
    }

    /// Notes that the kernel has taken `bytes`.
    pub fn after_write(&self, bytes: usize) {
        self.written.set(self.written.get() + bytes as u64);
    }

    /// Decides on the claims after an incident. `info` is asked only if there are any.
    pub fn note(&self, incident: Incident, info: impl FnOnce() -> Option<TcpInfo>) {
        if incident == Incident::Closed {
            self.is_closed_by_client.set(true);
        }
        if self.is_empty() {
            return;
        }
        let (info, written) = (info(), self.written.get());
        self.unconfirmed.borrow_mut().retain_mut(|sent| match fate(sent.end, written, info, incident) {
            Fate::Undecided => true,
            // Dropped, the claim is undone.
            Fate::Lost => false,
            Fate::Delivered => {
                sent.claim.delivered();
                false
            }
        });
    }
}

/// Decides on a response that ends at byte `end`, of a connection whose kernel has taken
/// `written` bytes.
fn fate(end: Option<u64>, written: u64, info: Option<TcpInfo>, incident: Incident) -> Fate {
    let Some(end) = end.filter(|end| *end <= written) else {
        let is_last = matches!(incident, Incident::Failed | Incident::GivenUp);
        return if is_last { Fate::Lost } else { Fate::Undecided };
    };
    // In doubt, the client has it.
    let Some(info) = info else { return Fate::Delivered };
    if info.acknowledged < end {
        return match incident {
            Incident::Failed => Fate::Lost,
            _ if info.is_over => Fate::Lost,
            // What the kernel has, it goes on sending. The lease ends the doubt.
            Incident::GivenUp => Fate::Delivered,
            Incident::Received | Incident::Closed | Incident::Quiet => Fate::Undecided,
        };
    }
    match incident {
        Incident::Failed if info.since_acknowledged <= UNREAD_FOR => Fate::Lost,
        Incident::Quiet if info.since_acknowledged < CLOSES_WITHIN => Fate::Undecided,
        _ => Fate::Delivered,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WRITTEN: u64 = 1_000;

    fn info(acknowledged: u64, since: Duration) -> Option<TcpInfo> {
        Some(TcpInfo { acknowledged, since_acknowledged: since, is_over: false })
    }

    fn over(acknowledged: u64) -> Option<TcpInfo> {
        info(acknowledged, Duration::ZERO).map(|info| TcpInfo { is_over: true, ..info })
    }

    #[test]
    fn a_response_of_which_all_is_acknowledged_is_delivered_unless_the_connection_is_reset_soon() {
        for (since, incident, fated) in [
            (Duration::ZERO, Incident::Received, Fate::Delivered),
            (Duration::ZERO, Incident::Closed, Fate::Delivered),
            (Duration::ZERO, Incident::GivenUp, Fate::Delivered),
            (Duration::ZERO, Incident::Failed, Fate::Lost),
            (UNREAD_FOR, Incident::Failed, Fate::Lost),
            (UNREAD_FOR + Duration::from_millis(1), Incident::Failed, Fate::Delivered),
            (Duration::ZERO, Incident::Quiet, Fate::Undecided),
            (CLOSES_WITHIN, Incident::Quiet, Fate::Delivered),
        ] {
            assert_eq!(fate(Some(WRITTEN), WRITTEN, info(WRITTEN, since), incident), fated, "{incident:?} {since:?}");
        }
    }

    #[test]
    fn a_response_of_which_a_byte_is_not_acknowledged_is_lost_when_the_connection_is_over() {
        for (incident, open, ended) in [
            (Incident::Received, Fate::Undecided, Fate::Lost),
            (Incident::Closed, Fate::Undecided, Fate::Lost),
            (Incident::Quiet, Fate::Undecided, Fate::Lost),
            (Incident::Failed, Fate::Lost, Fate::Lost),
            (Incident::GivenUp, Fate::Delivered, Fate::Lost),
        ] {
            let far_ago = Duration::from_secs(60);
            assert_eq!(fate(Some(WRITTEN), WRITTEN, info(WRITTEN - 1, far_ago), incident), open, "{incident:?}");
            assert_eq!(fate(Some(WRITTEN), WRITTEN, over(WRITTEN - 1), incident), ended, "{incident:?}");
        }
    }

    #[test]
    fn a_response_that_the_kernel_has_not_taken_is_lost_with_its_connection() {
        for end in [None, Some(WRITTEN + 1)] {
            for info in [None, info(WRITTEN, Duration::ZERO)] {
                assert_eq!(fate(end, WRITTEN, info, Incident::Failed), Fate::Lost);
                assert_eq!(fate(end, WRITTEN, info, Incident::GivenUp), Fate::Lost);
                assert_eq!(fate(end, WRITTEN, info, Incident::Received), Fate::Undecided);
                assert_eq!(fate(end, WRITTEN, info, Incident::Closed), Fate::Undecided);
            }
        }
    }

    #[test]
    fn where_the_kernel_tells_nothing_a_response_that_it_has_taken_is_delivered() {
        for incident in [Incident::Received, Incident::Closed, Incident::Failed, Incident::Quiet, Incident::GivenUp] {
            assert_eq!(fate(Some(WRITTEN), WRITTEN, None, incident), Fate::Delivered);
        }
    }
}
