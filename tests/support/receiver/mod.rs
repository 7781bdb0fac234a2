//! A scripted webhook receiver: a real server on its own port, which records its requests and can
//! give every kind of broken response that real receivers give.
//!
//! ```ignore
//! let receiver = Receiver::start().await;          // answers 200 to everything
//! receiver.next(Reply::status(500));               // the next request fails
//! receiver.always(Reply::gone());                  // the default from now on
//! receiver.answer_with(|request| …);               // or decided per request
//! let requests = receiver.received(3).await;       // waits for the third
//!
//! let gate = Gate::closed();                       // holds a response until it is opened
//! receiver.next(Reply::ok().held_by(&gate));
//! receiver.until_in_flight(1).await;
//! gate.open();
//! ```

mod connection;
mod desk;
mod gate;
mod reply;
mod request;
mod tls;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};

pub(crate) use gate::Gate;
pub(crate) use reply::Reply;
pub(crate) use request::Recorded;

use super::PATIENCE;
use desk::{Counts, ReceiverState};
use tls::Identity;

/// A scripted server on 127.0.0.1. When it is dropped, it closes its port and all connections.
pub(crate) struct Receiver {
    address: SocketAddr,
    state: Arc<ReceiverState>,
    identity: Option<Identity>,
    accepting: JoinHandle<()>,
}

impl Receiver {
    /// Starts a receiver that speaks plain HTTP and answers 200 by default.
    pub(crate) async fn start() -> Self {
        Self::start_with(None).await
    }

    /// Starts a receiver that speaks TLS with a self-signed certificate for `localhost` and
    /// `127.0.0.1`. Only clients that were given [`Receiver::certificate`] trust it.
    pub(crate) async fn start_tls() -> Self {
        Self::start_with(Some(Identity::self_signed(&["localhost", "127.0.0.1"]))).await
    }

    /// Starts a receiver that speaks TLS with a certificate for exactly these names.
    pub(crate) async fn start_tls_for(names: &[&str]) -> Self {
        Self::start_with(Some(Identity::self_signed(names))).await
    }

    async fn start_with(identity: Option<Identity>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let state = Arc::new(ReceiverState::new());
        let acceptor = identity.as_ref().map(|identity| identity.acceptor.clone());
        let accepting = tokio::spawn(accept(listener, acceptor, state.clone()));
        Self { address, state, identity, accepting }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the URL of a path at this receiver, for example `/hook`.
    pub(crate) fn url(&self, path: &str) -> String {
        let scheme = if self.identity.is_some() { "https" } else { "http" };
        format!("{scheme}://{}{path}", self.address)
    }

    /// Returns the certificate file (PEM) that a client must trust.
    pub(crate) fn certificate(&self) -> &Path {
        self.identity.as_ref().expect("a receiver that speaks TLS").certificate.path()
    }

    /// Answers one further request with `reply`. Queued replies are used before the rule.
    pub(crate) fn next(&self, reply: Reply) {
        self.state.script().next.push_back(reply);
    }

    /// Answers the first request of an event that has not been sent before with `reply`. A retry, a replay or
    /// a test that is still on its way cannot take it.
    pub(crate) fn next_event(&self, reply: Reply) {
        self.state.script().next_events.push_back(reply);
    }

    /// Answers every request with `reply` from now on.
    pub(crate) fn always(&self, reply: Reply) {
        self.answer_with(move |_| reply.clone());
    }

    /// Answers every request with what `rule` returns from now on. A panic in a rule ends the
    /// receiver: record what the rule sees, and assert it afterwards.
    pub(crate) fn answer_with(&self, rule: impl FnMut(&Recorded) -> Reply + Send + 'static) {
        self.state.script().rule = Box::new(rule);
    }

    /// Waits until `count` requests have arrived, and returns all that have.
    #[track_caller]
    pub(crate) fn received(&self, count: usize) -> impl Future<Output = Vec<Recorded>> {
        let waiting = self.wait_for("requests received", count, move |counts| counts.received >= count);
        async {
            waiting.await;
            self.so_far()
        }
    }

    /// Returns the requests that have arrived so far, in the order of their arrival.
    pub(crate) fn so_far(&self) -> Vec<Recorded> {
        self.state.so_far()
    }

    /// Returns the number of requests that have arrived so far.
    pub(crate) fn count(&self) -> usize {
        self.state.counts().received
    }

    /// Returns the number of requests whose response is not complete. A sender may have its
    /// response shortly before it is counted; see [`Receiver::until_in_flight`].
    pub(crate) fn in_flight(&self) -> usize {
        self.state.counts().in_flight
    }

    /// Returns the highest number of requests that were in flight at the same time.
    pub(crate) fn most_in_flight(&self) -> usize {
        self.state.counts().most_in_flight
    }

    /// Returns the number of connections made so far.
    pub(crate) fn connections(&self) -> usize {
        self.state.counts().connections
    }

    /// Waits until exactly `count` requests are in flight. A held request ends when its sender
    /// hangs up.
    #[track_caller]
    pub(crate) fn until_in_flight(&self, count: usize) -> impl Future<Output = ()> {
        self.wait_for("requests in flight", count, move |counts| counts.in_flight == count)
    }

    /// Waits until at least `count` requests are in flight.
    #[track_caller]
    pub(crate) fn until_at_least_in_flight(&self, count: usize) -> impl Future<Output = ()> {
        self.wait_for("requests in flight at once", count, move |counts| counts.in_flight >= count)
    }

    #[track_caller]
    fn wait_for(
        &self,
        what: &'static str,
        count: usize,
        mut holds: impl FnMut(&Counts) -> bool,
    ) -> impl Future<Output = ()> {
        let called_at = std::panic::Location::caller();
        let mut counts = self.state.watch();
        async move {
            let outcome = tokio::time::timeout(PATIENCE, counts.wait_for(|counts| holds(counts))).await.is_ok();
            let counts = *counts.borrow();
            assert!(outcome, "there never were {count} {what} ({called_at}): {counts:?}");
        }
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, acceptor: Option<tokio_rustls::TlsAcceptor>, state: Arc<ReceiverState>) {
    // Dropping this task drops the set, which closes all connections.
    let mut serving = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await.expect("a connection");
        stream.set_nodelay(true).expect("a socket");
        let number = state.connected();
        serving.spawn(connection::serve(stream, acceptor.clone(), number, state.clone()));
        while serving.try_join_next().is_some() {}
    }
}
