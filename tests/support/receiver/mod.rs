//! A receiver of webhooks that does as it is told: a real server on a port of its own, which
//! keeps what it was sent and can answer badly in all the ways that real ones do.
//!
//! ```ignore
//! let receiver = Receiver::start().await;          // answers 200 to everything
//! receiver.next(Reply::status(500));               // the next request fails, once
//! receiver.always(Reply::gone());                  // the default from now on
//! receiver.answer_with(|request| …);               // or decided per request
//! let requests = receiver.received(3).await;       // waits for the third
//!
//! let gate = Gate::closed();                       // holds an answer until it is opened
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

pub use gate::Gate;
pub use reply::Reply;
pub use request::Recorded;

use super::PATIENCE;
use desk::{Counts, Desk};
use tls::Identity;

/// A scripted server on 127.0.0.1. Dropped, it closes its port and all connections.
pub struct Receiver {
    address: SocketAddr,
    desk: Arc<Desk>,
    identity: Option<Identity>,
    accepting: JoinHandle<()>,
}

impl Receiver {
    /// One that speaks plain HTTP and answers 200 until told otherwise.
    pub async fn start() -> Self {
        Self::start_with(None).await
    }

    /// One that speaks TLS, with a certificate for `localhost` and `127.0.0.1` that nobody
    /// trusts who was not given [`Receiver::certificate`].
    pub async fn start_tls() -> Self {
        Self::start_with(Some(Identity::self_signed(&["localhost", "127.0.0.1"]))).await
    }

    /// One that speaks TLS, with a certificate for these names and no other.
    pub async fn start_tls_for(names: &[&str]) -> Self {
        Self::start_with(Some(Identity::self_signed(names))).await
    }

    async fn start_with(identity: Option<Identity>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let desk = Arc::new(Desk::new());
        let acceptor = identity.as_ref().map(|identity| identity.acceptor.clone());
        let accepting = tokio::spawn(accept(listener, acceptor, desk.clone()));
        Self { address, desk, identity, accepting }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL of a path here, such as `/hook`.
    pub fn url(&self, path: &str) -> String {
        let scheme = if self.identity.is_some() { "https" } else { "http" };
        format!("{scheme}://{}{path}", self.address)
    }

    /// The file with the certificate (PEM) that a client must trust to speak with it.
    pub fn certificate(&self) -> &Path {
        self.identity.as_ref().expect("a receiver that speaks TLS").certificate.path()
    }

    /// Answers one more request with `reply`; such replies queue up, and go first.
    pub fn next(&self, reply: Reply) {
        self.desk.script().next.push_back(reply);
    }

    /// Answers every request with `reply` from now on.
    pub fn always(&self, reply: Reply) {
        self.answer_with(move |_| reply.clone());
    }

    /// Answers every request as `rule` says from now on. A rule that panics takes the receiver
    /// with it: let it note what it sees, and look at that afterwards.
    pub fn answer_with(&self, rule: impl FnMut(&Recorded) -> Reply + Send + 'static) {
        self.desk.script().rule = Box::new(rule);
    }

    /// Waits until `count` requests have come, and answers all that have.
    #[track_caller]
    pub fn received(&self, count: usize) -> impl Future<Output = Vec<Recorded>> {
        let waiting = self.wait_for("requests received", count, move |counts| counts.received >= count);
        async {
            waiting.await;
            self.so_far()
        }
    }

    /// The requests that have come so far, in the order of their arrival.
    pub fn so_far(&self) -> Vec<Recorded> {
        self.desk.so_far()
    }

    /// How many requests have come so far.
    pub fn count(&self) -> usize {
        self.desk.counts().received
    }

    /// How many requests have come and are not answered to the end. A sender may have its
    /// answer a moment before it is counted; see [`Receiver::until_in_flight`].
    pub fn in_flight(&self) -> usize {
        self.desk.counts().in_flight
    }

    /// The most requests that were in flight at any one time.
    pub fn most_in_flight(&self) -> usize {
        self.desk.counts().most_in_flight
    }

    /// How many connections were made so far.
    pub fn connections(&self) -> usize {
        self.desk.counts().connections
    }

    /// Waits until exactly `count` requests are in flight. A sender that hangs up on a held
    /// request ends it.
    #[track_caller]
    pub fn until_in_flight(&self, count: usize) -> impl Future<Output = ()> {
        self.wait_for("requests in flight", count, move |counts| counts.in_flight == count)
    }

    /// Waits until at least so many requests are under way.
    #[track_caller]
    pub fn until_at_least_in_flight(&self, count: usize) -> impl Future<Output = ()> {
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
        let mut counts = self.desk.watch();
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

async fn accept(listener: TcpListener, acceptor: Option<tokio_rustls::TlsAcceptor>, desk: Arc<Desk>) {
    // Dropped with this task, and all connections with it.
    let mut serving = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await.expect("a connection");
        stream.set_nodelay(true).expect("a socket");
        let number = desk.connected();
        serving.spawn(connection::serve(stream, acceptor.clone(), number, desk.clone()));
        while serving.try_join_next().is_some() {}
    }
}
