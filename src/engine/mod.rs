//! WRITES: the one place through which work changes its state.
//!
//! One function per verb, one transaction per call, and in that transaction the lines of
//! `event_log` that say what was done, so that the log and the state cannot disagree. Every
//! verb takes many at once: `publish_events`, `claim_deliveries`, `settle_deliveries`.
//!
//! The cast: [`changes::Changes`] is a handful of deliveries under lock, being changed by the
//! rules of [`crate::domain`]; the [`hub::Hub`] holds the workers that wait; whatever enters
//! `ready` wakes one of them after the commit, here and, by way of [`announcer::Announcer`],
//! on other servers. [`sightings::Sightings`] remembers who called.
//!
//! A caller that goes away must not cut a transaction in two, so writes run as tasks of the
//! main runtime; only waiting happens in the caller's own future.

pub mod announcer;
pub mod changes;
pub mod claim_deliveries;
pub mod clock;
pub mod hub;
pub mod operate;
pub mod publish_events;
pub mod settle_deliveries;
pub mod sightings;
pub mod sweep;

use std::collections::HashSet;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use tokio::runtime::Handle;

use crate::domain::backoff::Backoff;
use crate::error::Error;
use crate::logging::REQUEST_ID;
use crate::store::database::Database;
use crate::store::ready::queue_of_tag;

use announcer::Announcer;
use clock::Clock;
use hub::Hub;
use sightings::Sightings;

/// By when a caller has an answer, whatever the database does.
const ANSWER_WITHIN: Duration = Duration::from_millis(4_700);

/// How often a transaction that fell victim to another is run again.
const CONFLICT_RETRIES: usize = 3;

/// What the engine has to know about this server.
#[derive(Debug, Clone)]
pub struct EngineSettings {
    /// The wait after a failure, for events that do not say.
    pub default_backoff: Backoff,
    /// After how many leases that ran out in a row an event is given up as poison.
    pub poison_after: i32,
    /// How many workers may wait at once.
    pub max_waiting: usize,
    /// How many rows a filter without an index may read.
    pub list_scan_rows: i64,
}

/// The engine. Cheap to clone; all clones are one.
#[derive(Clone)]
pub struct Engine(Arc<Parts>);

/// What the engine is made of.
pub struct Parts {
    /// The database.
    pub database: Database,
    /// Whose time it is.
    pub clock: Clock,
    /// Its settings.
    pub settings: EngineSettings,
    /// Who waits.
    pub hub: Arc<Hub>,
    /// What other servers should hear.
    pub announcer: Announcer,
    /// Who was seen.
    pub sightings: Sightings,
    instance: String,
    runtime: Handle,
}

impl std::ops::Deref for Engine {
    type Target = Parts;
    fn deref(&self) -> &Parts {
        &self.0
    }
}

impl Engine {
    /// Puts an engine together. Must be called on the main runtime.
    pub fn new(database: Database, clock: Clock, settings: EngineSettings) -> Self {
        Engine(Arc::new(Parts {
            database,
            clock,
            hub: Arc::new(Hub::new(settings.max_waiting)),
            announcer: Announcer::default(),
            sightings: Sightings::default(),
            settings,
            instance: format!(
                "{}:{}:{:08x}",
                gethostname::gethostname().to_string_lossy(),
                std::process::id(),
                getrandom::u32().unwrap_or_default()
            ),
            runtime: Handle::current(),
        }))
    }

    /// This server's name among those on the same database.
    pub fn instance(&self) -> &str {
        &self.instance
    }

    /// The time, where it is not the database's to tell.
    pub fn now(&self) -> Option<DateTime<Utc>> {
        self.clock.now()
    }

    /// Runs work as a task of the main runtime, which goes on even if the caller goes away,
    /// and answers in time even if it does not.
    async fn detached<T, F>(&self, work: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        let task = match REQUEST_ID.try_with(String::clone) {
            Ok(id) => self.runtime.spawn(REQUEST_ID.scope(id, work)),
            Err(_) => self.runtime.spawn(work),
        };
        match tokio::time::timeout(ANSWER_WITHIN, task).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(panic)) => Err(Error::Internal(format!("a task panicked: {panic}"))),
            Err(_) => Err(Error::unavailable("no answer from the database in time".into())),
        }
    }

    /// Tells waiting workers, here and elsewhere, of deliveries that entered `ready`; one
    /// list of tags per delivery. Call it after the commit.
    fn wake(&self, entered: &[Vec<String>]) {
        let mut queues = HashSet::new();
        for tags in entered {
            let of_delivery: Vec<String> = tags.iter().map(|tag| queue_of_tag(tag)).collect();
            self.hub.wake_one(&of_delivery);
            queues.extend(of_delivery);
        }
        self.announcer.announce(queues);
    }
}

/// Runs a transaction, again if it fell victim to another: `transaction!(engine, |conn| …)`.
macro_rules! transaction {
    ($engine:expr, |$conn:ident| $work:expr) => {{
        let mut tries = 0;
        loop {
            let mut pooled = $engine.database.connection().await?;
            let connection: &mut diesel_async::AsyncPgConnection = &mut pooled;
            let outcome: Result<_, crate::error::Error> =
                diesel_async::AsyncConnection::transaction(connection, async |$conn| $work).await;
            match outcome {
                Err(error) if error.is_conflict() && tries < super::CONFLICT_RETRIES => tries += 1,
                outcome => break outcome,
            }
        }
    }};
}
use transaction;
