//! The endpoints that have failed since their last response, as far as this server has seen.
//!
//! The dispatcher reads the state of an endpoint before it claims pushes. The endpoint may fail while
//! their requests are in flight. The next request that gets a response must then record it, because
//! failures with a response in between are not consecutive.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::domain::ids::NamespaceId;
use crate::store::tables::endpoints::EndpointKey;

/// The URLs of failing endpoints, by namespace.
#[derive(Default)]
pub struct Failing(Mutex<HashMap<NamespaceId, HashSet<String>>>);

impl Failing {
    /// Records that an endpoint has failed.
    pub fn note(&self, endpoint: EndpointKey<'_>) {
        let mut failing = self.lock();
        let urls = failing.entry(endpoint.namespace).or_default();
        if !urls.contains(endpoint.url) {
            urls.insert(endpoint.url.to_owned());
        }
    }

    /// Records that an endpoint has responded. Returns whether it had failed before.
    pub fn forget(&self, endpoint: EndpointKey<'_>) -> bool {
        self.lock().get_mut(&endpoint.namespace).is_some_and(|urls| urls.remove(endpoint.url))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<NamespaceId, HashSet<String>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
