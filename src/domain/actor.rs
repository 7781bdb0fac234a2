//! Who causes a change that the lease holder does not cause: the key of a caller, or a service of the server.
//!
//! An actor is recorded as text: the name of the key, or `server:<service>`. No key may have a name of the
//! second form.

/// How the names of the server's own services begin.
const SERVER: &str = "server:";

/// The services of the server that change work or subscriptions on their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerActor {
    /// Releases claims whose response did not reach the worker.
    ClaimUndo,
    /// Abandons pushes that failed for good, and deactivates subscriptions whose endpoint is gone.
    Dispatcher,
    /// Fails deliveries that were not claimed in time.
    Expirer,
    /// Resets deliveries whose lease has expired.
    LeaseReaper,
    /// Cancels the pushes of deleted subscriptions.
    SubscriptionDrainer,
}

impl ServerActor {
    /// Returns the text that is recorded.
    pub const fn as_str(self) -> &'static str {
        match self {
            ServerActor::ClaimUndo => "server:claim_undo",
            ServerActor::Dispatcher => "server:dispatcher",
            ServerActor::Expirer => "server:expirer",
            ServerActor::LeaseReaper => "server:lease_reaper",
            ServerActor::SubscriptionDrainer => "server:subscription_drainer",
        }
    }
}

/// Returns whether a name could be taken for one of the server's services, so that no key may have it.
pub fn is_reserved(name: &str) -> bool {
    name.trim_start().get(..SERVER.len()).is_some_and(|start| start.eq_ignore_ascii_case(SERVER))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_of_services_are_reserved_in_any_case() {
        for name in [ServerActor::LeaseReaper.as_str(), "server:", "Server:x", " server:x"] {
            assert!(is_reserved(name), "{name}");
        }
        for name in ["server", "servers:a", "the server:a", "", "sérver:a"] {
            assert!(!is_reserved(name), "{name}");
        }
    }
}
