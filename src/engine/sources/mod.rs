//! Sources: webhooks of other systems come in, are verified, and become events.
//!
//! [`Engine::find_source`] finds the source of a webhook by the token in its URL, usually in the [`cache::SourceCache`]
//! and without a statement. Each change of a source gives the catalog of sources another generation and notifies all
//! servers, which then compare their caches with the database ([`Engine::refresh_sources`]); a server that misses the
//! notification notices the generation within its poll interval. A [`source::Source`] verifies a webhook, and
//! [`Engine::publish_incoming`] stores its event. Webhooks that were refused are counted in memory
//! ([`refused_webhooks`]) and recorded in batches. `operate/sources.rs` has the changes of sources.

pub(crate) mod cache;
pub(crate) mod refused_webhooks;
pub(crate) mod source;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::domain::ids::SourceKey;
use crate::domain::source::{SourceToken, TokenHash};
use crate::error::{Error, OutageKind};
use crate::store::tables::events::StoredEvent;
use crate::store::tables::sources::{load_source_generation, load_sources, record_refused_webhooks};

use crate::engine::Engine;
use crate::engine::own_task::in_own_task;
use crate::engine::publish::Publication;
use cache::Found;
use source::Source;

/// The time that a look-up of a source waits for its turn.
const LOOK_UP_PATIENCE: Duration = Duration::from_secs(2);

/// The number of times that a source is looked up while the sources keep changing.
const LOOK_UPS: usize = 5;

/// The maximum number of sources whose refused webhooks one statement records.
const ROWS_PER_STATEMENT: usize = 5_000;

impl Engine {
    /// Returns the active source whose URL has this token. An address that has sent too many unknown tokens has to
    /// wait, unless the source is in memory.
    pub(crate) async fn find_source(&self, token: &str, address: Option<IpAddr>) -> Result<Arc<Source>, Error> {
        let hash = SourceToken::hash_of(token).ok_or(Error::UnknownSourceToken)?;
        match self.sources().find(hash) {
            Found::Source(source) => Ok(source),
            Found::Unknown => Err(Error::UnknownSourceToken),
            // Boxed, because it is rare, and every webhook would carry its size.
            Found::NotCached => Box::pin(self.look_up_source(hash, address)).await,
        }
    }

    async fn look_up_source(&self, hash: TokenHash, address: Option<IpAddr>) -> Result<Arc<Source>, Error> {
        self.check_token_guesses(address)?;
        let permit = tokio::time::timeout(LOOK_UP_PATIENCE, self.sources().look_ups.acquire()).await;
        let _permit = permit.ok().and_then(Result::ok).ok_or(Error::Overloaded)?;
        for _ in 0..LOOK_UPS {
            // Another webhook may have looked it up meanwhile.
            match self.sources().find(hash) {
                Found::Source(source) => return Ok(source),
                Found::Unknown => return Err(Error::UnknownSourceToken),
                Found::NotCached => {}
            }
            // Others from the same address may have used up its budget while this one waited for its turn.
            self.check_token_guesses(address)?;
            let mut conn = self.database().connection().await?;
            let loaded = load_sources(&mut conn, &[hash]).await?;
            drop(conn);
            let is_known = !loaded.sources.is_empty();
            if !self.sources().add(hash, loaded, &self.settings().secret_keys) {
                self.refresh_sources().await?;
            } else if !is_known {
                self.sources().guesses.note(address, Instant::now());
                return Err(Error::UnknownSourceToken);
            }
        }
        Err(Error::outage(OutageKind::Conflict, "the sources keep changing"))
    }

    /// Refuses a look-up for an address that has sent too many unknown tokens.
    fn check_token_guesses(&self, address: Option<IpAddr>) -> Result<(), Error> {
        match self.sources().guesses.wait(address, Instant::now()) {
            Some(wait) => Err(Error::TooManyGuesses { retry_after: wait.as_secs() + 1 }),
            None => Ok(()),
        }
    }

    /// Compares the sources in memory with the database, if they may have changed.
    pub async fn refresh_sources(&self) -> Result<(), Error> {
        let _turn = self.sources().refreshing.lock().await;
        let mut conn = self.database().connection().await?;
        if load_source_generation(&mut conn).await? == self.sources().generation() {
            return Ok(());
        }
        for _ in 0..LOOK_UPS {
            let hashes = self.sources().hashes();
            let loaded = load_sources(&mut conn, &hashes).await?;
            if self.sources().replace(&hashes, loaded, &self.settings().secret_keys) {
                return Ok(());
            }
        }
        Err(Error::outage(OutageKind::Conflict, "the sources keep changing"))
    }

    /// Brings this server's sources up to date after a change of its own. Other servers have been notified.
    pub(crate) async fn after_source_change(&self) {
        if let Err(error) = self.refresh_sources().await {
            log::warn!("the sources could not be read again yet: {error}");
            self.sources().note_change();
        }
    }

    /// Stores the event of a webhook, once, if the webhook has an idempotency key.
    pub(crate) async fn publish_incoming(
        &self,
        source: SourceKey,
        events: Publication,
    ) -> Result<Vec<StoredEvent>, Error> {
        let stored = self.publish_events(source.namespace, events).await.map_err(Error::about_one_event)?;
        for stored in &stored {
            log::debug!(source_id = source.id, event_id = stored.id, is_repeated = stored.is_repeated; "a webhook came in");
        }
        Ok(stored)
    }

    /// Records the webhooks that were refused since the last call. Returns the number of sources that they were for. If
    /// that fails, the rest is recorded by the next call.
    pub async fn record_refused_webhooks(&self) -> Result<usize, Error> {
        let engine = self.clone();
        in_own_task(async move { engine.write_refused_webhooks().await }).await
    }

    async fn write_refused_webhooks(&self) -> Result<usize, Error> {
        let refused = self.refused_webhooks().take();
        for (index, part) in refused.chunks(ROWS_PER_STATEMENT).enumerate() {
            let recorded = async {
                let mut conn = self.database().connection().await?;
                Ok::<(), Error>(record_refused_webhooks(&mut conn, part).await?)
            };
            if let Err(error) = recorded.await {
                self.refused_webhooks().put_back(&refused[index * ROWS_PER_STATEMENT..]);
                return Err(error);
            }
        }
        Ok(refused.len())
    }
}
