//! The endpoints that have failed since their last response, as far as this server has seen.
//!
//! The dispatcher reads the state of an endpoint before it claims pushes. The endpoint may fail while
//! their requests are in flight. The next request that gets a response must then record it, because
//! failures with a response in between are not consecutive.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The URLs of failing endpoints.
#[derive(Default)]
pub struct Failing(Mutex<HashSet<String>>);

impl Failing {
    /// Records that an endpoint has failed.
    pub fn note(&self, url: &str) {
        let mut urls = self.lock();
        if !urls.contains(url) {
            urls.insert(url.to_owned());
        }
    }

    /// Records that an endpoint has responded. Returns whether it had failed before.
    pub fn forget(&self, url: &str) -> bool {
        self.lock().remove(url)
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
