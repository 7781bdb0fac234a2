//! Claims whose responses are being sent, and the decision whether the responses arrived.
//!
//! Each connection has one [`SentClaims`]. A response with a claim adds the claim to it, and the
//! connection reports the bytes that it writes and its incidents. A claim is undone exactly if the
//! client cannot have read the response. That is the case if the connection ended before the
//! client's kernel acknowledged all bytes. It is also the case if the client reset the connection
//! shortly after the acknowledgement, because a kernel does this for a process that ends with
//! unread data. A client that reads its response and closes the connection keeps its claim: its
//! kernel acknowledges all bytes with the closing packet at the latest.
//!
//! No polling is needed while a connection is open: the next request, the close or the reset is an
//! incident anyway. For connections that the server closes, see [`super::client_socket`].
//!
//! Over TLS, the bytes of a response are not those that the kernel sends: [`super::client_stream`]
//! reports the former, [`super::client_socket`] the latter. The end of a response among the bytes sent
//! is known once nothing is left between the two.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use super::tcp_info::TcpInfo;
use crate::engine::claim::SentClaim;

/// A reset within this time after the last acknowledgement means that the client has not read its
/// response. A live client reads within milliseconds. Proxies and firewalls also reset idle
/// connections, whose clients have read the response, but they wait longer than this.
const UNREAD_RESET_WINDOW: Duration = Duration::from_secs(5);

/// The time that a connection closed by the server waits for the client's close or reset after all
/// bytes are acknowledged.
const CLIENT_CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// An incident of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Incident {
    /// The client sent bytes.
    Received,
    /// The client closed its side.
    Closed,
    /// Reading or writing failed, because the client reset the connection or is unreachable.
    Failed,
    /// The server has closed its side, and nothing else happened for a while.
    Quiet,
    /// The server drops the connection.
    Abandoned,
}

/// Whether a response arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// The client has the response, or may have it.
    Delivered,
    /// The client cannot have the response.
    Lost,
    /// The response is still being sent.
    Undecided,
}

/// The claims that were sent over one connection and are not known to have arrived.
#[derive(Default)]
pub(crate) struct SentClaims {
    unconfirmed: RefCell<Vec<Unconfirmed>>,
    /// The number of bytes of responses that the stream has accepted, before their encryption.
    accepted: Cell<u64>,
    /// The number of bytes that the kernel has accepted for sending.
    sent: Cell<u64>,
    is_closed_by_client: Cell<bool>,
    has_announced_close: Cell<bool>,
}

struct Unconfirmed {
    claim: SentClaim,
    end: End,
}

/// Where a response ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// With the next write.
    InNextWrite,
    /// At this value of `accepted`. The kernel does not have all of its bytes yet.
    Accepted(u64),
    /// At this value of `sent`, or before it.
    Sent(u64),
}

impl SentClaims {
    /// Adds a claim whose response ends with the next write.
    pub(crate) fn add(&self, claim: SentClaim) {
        self.unconfirmed.borrow_mut().push(Unconfirmed { claim, end: End::InNextWrite });
    }

    /// Returns whether all claims are decided.
    pub(crate) fn is_empty(&self) -> bool {
        self.unconfirmed.borrow().is_empty()
    }

    /// Returns whether the client's kernel has acknowledged the responses of all undecided claims. `info` is
    /// called only if there are any.
    pub(crate) fn are_acknowledged(&self, info: impl FnOnce() -> Option<TcpInfo>) -> bool {
        let unconfirmed = self.unconfirmed.borrow();
        if unconfirmed.is_empty() {
            return true;
        }
        // A system that does not tell is not waited for.
        let Some(info) = info() else { return true };
        unconfirmed.iter().all(|sent| matches!(sent.end, End::Sent(end) if end <= info.acknowledged))
    }

    /// Returns whether the client has closed its side.
    pub(crate) fn is_closed_by_client(&self) -> bool {
        self.is_closed_by_client.get()
    }

    /// Records that the client has closed its side.
    pub(crate) fn record_close_by_client(&self) {
        self.is_closed_by_client.set(true);
    }

    /// Records that the server has sent bytes after the last response, which announce that it closes the
    /// connection (`close_notify` of TLS). Clients that have read their response may leave them unread.
    pub(crate) fn record_announced_close(&self) {
        self.has_announced_close.set(true);
    }

    /// Records that a write of `bytes` bytes of responses begins, which is everything that the server has
    /// buffered.
    pub(crate) fn before_write(&self, bytes: usize) {
        let end = End::Accepted(self.accepted.get() + bytes as u64);
        let mut unconfirmed = self.unconfirmed.borrow_mut();
        unconfirmed.iter_mut().filter(|sent| sent.end == End::InNextWrite).for_each(|sent| sent.end = end);
    }

    /// Records that the stream has accepted `bytes` bytes of responses.
    pub(crate) fn after_write(&self, bytes: usize) {
        self.accepted.set(self.accepted.get() + bytes as u64);
    }

    /// Records that the kernel has accepted `bytes` bytes.
    pub(crate) fn record_sent(&self, bytes: usize) {
        self.sent.set(self.sent.get() + bytes as u64);
    }

    /// Records that the kernel has accepted all that the stream has accepted.
    pub(crate) fn record_flush(&self) {
        let (accepted, sent) = (self.accepted.get(), self.sent.get());
        for unconfirmed in self.unconfirmed.borrow_mut().iter_mut() {
            if matches!(unconfirmed.end, End::Accepted(end) if end <= accepted) {
                unconfirmed.end = End::Sent(sent);
            }
        }
    }

    /// Decides the claims after an incident. `info` is called only if there are any.
    pub(crate) fn decide(&self, incident: Incident, info: impl FnOnce() -> Option<TcpInfo>) {
        if incident == Incident::Closed {
            self.record_close_by_client();
        }
        if self.is_empty() {
            return;
        }
        let (info, has_announced_close) = (info(), self.has_announced_close.get());
        self.unconfirmed.borrow_mut().retain_mut(|sent| match fate(sent.end, info, incident, has_announced_close) {
            Fate::Undecided => true,
            // Dropping the claim undoes it.
            Fate::Lost => false,
            Fate::Delivered => {
                sent.claim.delivered();
                false
            }
        });
    }
}

/// Decides whether a response arrived that ends at `end`. If the server has announced its close in bytes
/// after the response, a reset may be due to these bytes, and shows nothing about the response.
fn fate(end: End, info: Option<TcpInfo>, incident: Incident, has_announced_close: bool) -> Fate {
    let End::Sent(end) = end else {
        let is_last = matches!(incident, Incident::Failed | Incident::Abandoned);
        return if is_last { Fate::Lost } else { Fate::Undecided };
    };
    // In doubt, the client has the response.
    let Some(info) = info else { return Fate::Delivered };
    if info.acknowledged < end {
        return match incident {
            Incident::Failed => Fate::Lost,
            _ if info.is_over => Fate::Lost,
            // The kernel goes on sending. If the response is lost after all, the lease expires.
            Incident::Abandoned => Fate::Delivered,
            Incident::Received | Incident::Closed | Incident::Quiet => Fate::Undecided,
        };
    }
    match incident {
        Incident::Failed if has_announced_close => Fate::Delivered,
        Incident::Failed if info.since_acknowledged <= UNREAD_RESET_WINDOW => Fate::Lost,
        Incident::Quiet if info.since_acknowledged < CLIENT_CLOSE_TIMEOUT => Fate::Undecided,
        _ => Fate::Delivered,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LENGTH: u64 = 1_000;
    const SENT: End = End::Sent(LENGTH);

    #[expect(clippy::unnecessary_wraps, reason = "the function under test takes an option")]
    fn info(acknowledged: u64, since: Duration) -> Option<TcpInfo> {
        Some(TcpInfo { acknowledged, since_acknowledged: since, is_over: false })
    }

    fn over(acknowledged: u64) -> Option<TcpInfo> {
        info(acknowledged, Duration::ZERO).map(|info| TcpInfo { is_over: true, ..info })
    }

    #[test]
    fn a_fully_acknowledged_response_is_delivered_unless_the_connection_is_reset_soon() {
        for (since, incident, expected) in [
            (Duration::ZERO, Incident::Received, Fate::Delivered),
            (Duration::ZERO, Incident::Closed, Fate::Delivered),
            (Duration::ZERO, Incident::Abandoned, Fate::Delivered),
            (Duration::ZERO, Incident::Failed, Fate::Lost),
            (UNREAD_RESET_WINDOW, Incident::Failed, Fate::Lost),
            (UNREAD_RESET_WINDOW + Duration::from_millis(1), Incident::Failed, Fate::Delivered),
            (Duration::ZERO, Incident::Quiet, Fate::Undecided),
            (CLIENT_CLOSE_TIMEOUT, Incident::Quiet, Fate::Delivered),
        ] {
            assert_eq!(fate(SENT, info(LENGTH, since), incident, false), expected, "{incident:?} {since:?}");
        }
    }

    #[test]
    fn a_partly_acknowledged_response_is_lost_when_the_connection_is_over() {
        for (incident, open, ended) in [
            (Incident::Received, Fate::Undecided, Fate::Lost),
            (Incident::Closed, Fate::Undecided, Fate::Lost),
            (Incident::Quiet, Fate::Undecided, Fate::Lost),
            (Incident::Failed, Fate::Lost, Fate::Lost),
            (Incident::Abandoned, Fate::Delivered, Fate::Lost),
        ] {
            let long_ago = Duration::from_secs(60);
            for has_announced_close in [false, true] {
                let fate = |info| fate(SENT, info, incident, has_announced_close);
                assert_eq!(fate(info(LENGTH - 1, long_ago)), open, "{incident:?}");
                assert_eq!(fate(over(LENGTH - 1)), ended, "{incident:?}");
            }
        }
    }

    #[test]
    fn a_response_that_the_kernel_has_not_accepted_is_lost_with_its_connection() {
        for end in [End::InNextWrite, End::Accepted(LENGTH)] {
            for info in [None, info(LENGTH, Duration::ZERO)] {
                for has_announced_close in [false, true] {
                    let fate = |incident| fate(end, info, incident, has_announced_close);
                    assert_eq!(fate(Incident::Failed), Fate::Lost);
                    assert_eq!(fate(Incident::Abandoned), Fate::Lost);
                    assert_eq!(fate(Incident::Received), Fate::Undecided);
                    assert_eq!(fate(Incident::Closed), Fate::Undecided);
                }
            }
        }
    }

    #[test]
    fn a_reset_after_the_server_announced_its_close_shows_nothing_about_an_acknowledged_response() {
        assert_eq!(fate(SENT, info(LENGTH, Duration::ZERO), Incident::Failed, true), Fate::Delivered);
        assert_eq!(fate(SENT, info(LENGTH, Duration::ZERO), Incident::Quiet, true), Fate::Undecided);
    }

    #[test]
    fn without_tcp_info_a_response_that_the_kernel_has_accepted_is_delivered() {
        for incident in [Incident::Received, Incident::Closed, Incident::Failed, Incident::Quiet, Incident::Abandoned] {
            assert_eq!(fate(SENT, None, incident, false), Fate::Delivered);
        }
    }
}
