//! Resolves names and checks the resulting addresses. All names are resolved here, and the client
//! connects to exactly the returned addresses. There is no second look-up that could return others.

use std::error::Error;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;

use futures_util::future::BoxFuture;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use tokio::sync::Semaphore;

use crate::domain::address::{self, AllowList};

/// A function that resolves a name.
pub type Lookup = Arc<dyn Fn(String) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> + Send + Sync>;

/// The maximum number of concurrent look-ups by the operating system. A look-up cannot be cancelled and occupies
/// a thread, so names whose servers do not respond must not be able to occupy all threads.
const LOOKUPS_AT_ONCE: usize = 128;

/// Returns the look-up of the operating system.
pub(super) fn system_lookup() -> Lookup {
    let permits = Arc::new(Semaphore::new(LOOKUPS_AT_ONCE));
    Arc::new(move |name| Box::pin(look_up(name, permits.clone())))
}

async fn look_up(name: String, permits: Arc<Semaphore>) -> io::Result<Vec<IpAddr>> {
    let permit = permits.acquire_owned().await.map_err(io::Error::other)?;
    let looking_up = tokio::task::spawn_blocking(move || {
        // Released when the look-up ends, which may be long after the request timed out.
        let _permit = permit;
        (name.as_str(), 0).to_socket_addrs().map(|found| found.map(|address| address.ip()).collect())
    });
    looking_up.await.map_err(io::Error::other)?
}

/// Resolves names, and rejects a name if any of its addresses is not allowed.
pub(super) struct GuardedResolver {
    pub lookup: Lookup,
    /// The allowed addresses besides public ones. `None` allows any: with a proxy, the only name to
    /// resolve is the name of the operator's proxy.
    pub allow: Option<Arc<AllowList>>,
}

impl Resolve for GuardedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let (found, allow) = ((self.lookup)(name.as_str().to_owned()), self.allow.clone());
        Box::pin(async move {
            let found = found.await?;
            if found.is_empty() {
                return Err("the name has no address".into());
            }
            // One forbidden address rejects the name: a mix of public and private addresses suggests an attack.
            let refusal = allow.and_then(|allow| found.iter().find_map(|ip| address::refusal(*ip, &allow)));
            match refusal {
                Some(range) => Err(Refused { range }.into()),
                // Port 0 means the port of the URL.
                None => Ok(Box::new(found.into_iter().map(|ip| SocketAddr::new(ip, 0))) as Addrs),
            }
        })
    }
}

/// A name resolves to a forbidden address. The message does not contain the address, so subscribers learn
/// nothing about the server's network.
#[derive(Debug)]
pub(super) struct Refused {
    range: &'static str,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the host leads to an address that is not public ({})", self.range)
    }
}

impl Error for Refused {}
