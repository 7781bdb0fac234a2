//! From names to addresses, with a judgement in between. This is the only place where names
//! are looked up, and what it hands out is what is dialled: there is no second look-up that
//! could say something else.

use std::error::Error;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;

use futures_util::future::BoxFuture;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use tokio::sync::Semaphore;

use crate::domain::address::{self, AllowList};

/// Finds the addresses of a name.
pub type Lookup = Arc<dyn Fn(String) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> + Send + Sync>;

/// Look-ups of the system that are under way at once. They cannot be called off and each keeps
/// a thread, so names whose servers do not answer must not be able to take all threads.
const LOOKUPS_AT_ONCE: usize = 128;

/// The look-up of the operating system.
pub(super) fn system_lookup() -> Lookup {
    let places = Arc::new(Semaphore::new(LOOKUPS_AT_ONCE));
    Arc::new(move |name| Box::pin(look_up(name, places.clone())))
}

async fn look_up(name: String, places: Arc<Semaphore>) -> io::Result<Vec<IpAddr>> {
    let place = places.acquire_owned().await.map_err(io::Error::other)?;
    let looking_up = tokio::task::spawn_blocking(move || {
        // Given back when the look-up ends, which may be long after everybody lost interest.
        let _place = place;
        (name.as_str(), 0).to_socket_addrs().map(|found| found.map(|address| address.ip()).collect())
    });
    looking_up.await.map_err(io::Error::other)?
}

/// Looks names up and hands out their addresses, if every one of them may be dialled.
pub(super) struct GuardedResolver {
    /// How to look up.
    pub lookup: Lookup,
    /// Which addresses may be dialled besides public ones. `None`: any, because the only name
    /// that is ever looked up is the operator's own proxy.
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
            // One bad address spoils the name: whoever mixes them is trying something.
            let refusal = allow.and_then(|allow| found.iter().find_map(|ip| address::refusal(*ip, &allow)));
            match refusal {
                Some(range) => Err(Refused { range }.into()),
                // Port 0 stands for the one in the URL.
                None => Ok(Box::new(found.into_iter().map(|ip| SocketAddr::new(ip, 0))) as Addrs),
            }
        })
    }
}

/// A name leads where it must not. The address itself is not told: names of the network around
/// us are nobody's business.
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
