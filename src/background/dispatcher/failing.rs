//! Which endpoints have failed since they last answered, as far as this server saw.
//!
//! What is known of an endpoint is asked for before requests are claimed. An endpoint may fail
//! while they are under way, and then the first of them that is answered has to say so: failures
//! with an answer between them are not failures in a row.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The endpoints, by their URLs.
#[derive(Default)]
pub struct Failing(Mutex<HashSet<String>>);

impl Failing {
    /// One has failed.
    pub fn note(&self, url: &str) {
        let mut urls = self.lock();
        if !urls.contains(url) {
            urls.insert(url.to_owned());
        }
    }

    /// One has answered; says whether it had failed.
    pub fn forget(&self, url: &str) -> bool {
        self.lock().remove(url)
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
