//! What a server says about itself: how it was built, when it was started, and with which settings.

use chrono::{DateTime, Utc};

use crate::config::{ServeArgs, SettingsInForce};

/// The facts about a running server that do not change.
#[derive(Debug)]
pub(crate) struct ServerFacts {
    pub version: &'static str,
    /// `release`, or `debug` for a build that is slower and checks more.
    pub build: &'static str,
    pub host: String,
    pub process_id: u32,
    pub started_at: DateTime<Utc>,
    /// Whether the server runs its own PostgreSQL.
    pub is_database_embedded: bool,
    /// Whether this server resets leases that have expired.
    pub auto_reset: bool,
    pub settings: SettingsInForce,
}

impl ServerFacts {
    pub(crate) fn of(args: &ServeArgs, started_at: DateTime<Utc>) -> Self {
        ServerFacts {
            version: env!("CARGO_PKG_VERSION"),
            build: if cfg!(debug_assertions) { "debug" } else { "release" },
            host: gethostname::gethostname().to_string_lossy().into_owned(),
            process_id: std::process::id(),
            started_at,
            is_database_embedded: args.database.database_url.as_ref().is_none_or(String::is_empty),
            auto_reset: args.auto_reset,
            settings: args.in_force.clone(),
        }
    }
}
