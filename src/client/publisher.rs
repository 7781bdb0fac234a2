//! Publishing that survives a lost connection.
//!
//! A request whose answer is lost may have been carried out. So every event gets an idempotency key before it is sent
//! for the first time, and is sent again under the same key: the server stores it once.
//!
//! ```no_run
//! use std::time::Duration;
//! use waybill::client::{Client, NewEvent, Publisher};
//!
//! # async fn publish() -> Result<(), waybill::client::ClientError> {
//! let client = Client::new("http://127.0.0.1:8080", None)?;
//! let publisher = Publisher::new(client).patience(Duration::from_secs(60));
//! let published = publisher.publish(NewEvent::new("Resize a photo", ["images"])).await?;
//! let many = (1..=500).map(|photo| NewEvent::new(format!("Resize photo {photo}"), ["images"]));
//! let receipts = publisher.publish_events(many.collect()).await?;
//! assert_eq!(receipts.len(), 500);
//! # Ok(())
//! # }
//! ```

use std::time::Duration;

use serde::de::DeserializeOwned;
use tokio::time::Instant;

use super::pause::Pause;
use super::{Client, ClientError, NewEvent, PublishedEvent, random_key};

/// The longest time for which a request is sent again.
pub(crate) const LONGEST_PATIENCE: Duration = Duration::from_secs(24 * 3600);

/// The least time that an attempt has.
const SHORTEST_ATTEMPT: Duration = Duration::from_secs(2);

/// How long a request is sent again, unless another time is given.
const PATIENCE: Duration = Duration::from_secs(30);

/// The most that one attempt takes of the patience: a connection that swallows a request must leave time for another.
const ATTEMPTS_IN_PATIENCE: u32 = 3;

/// Publishes events, and sends a request again while the server is away or overloaded.
#[derive(Debug, Clone)]
pub struct Publisher {
    client: Client,
    patience: Duration,
}

impl Publisher {
    /// Returns a publisher that sends a request again for half a minute.
    pub fn new(client: Client) -> Self {
        Publisher { client, patience: PATIENCE }
    }

    /// Returns the publisher with another time after which no request is sent again.
    pub fn patience(self, patience: Duration) -> Self {
        Publisher { patience, ..self }
    }

    /// Publishes an event, once.
    pub async fn publish(&self, event: NewEvent) -> Result<PublishedEvent, ClientError> {
        self.publish_as(event).await
    }

    /// Publishes an event, once, and returns the answer in another form.
    pub(crate) async fn publish_as<T: DeserializeOwned>(&self, event: NewEvent) -> Result<T, ClientError> {
        let event = with_key(event);
        self.repeat(async || self.client.publish_as(&event, None).await).await
    }

    /// Publishes up to 1,000 events in one transaction: all or none, each once.
    pub async fn publish_events(&self, events: Vec<NewEvent>) -> Result<Vec<PublishedEvent>, ClientError> {
        let events: Vec<NewEvent> = events.into_iter().map(with_key).collect();
        self.repeat(async || self.client.publish_events(&events).await).await
    }

    /// Sends a request until it is answered. It must have the same effect if it is sent twice.
    async fn repeat<T>(&self, send: impl AsyncFn() -> Result<T, ClientError>) -> Result<T, ClientError> {
        let (patience, mut pause) = (self.patience.min(LONGEST_PATIENCE), Pause::default());
        let until = Instant::now() + patience;
        loop {
            let attempt = tokio::time::timeout((patience / ATTEMPTS_IN_PATIENCE).max(SHORTEST_ATTEMPT), send()).await;
            let error = match attempt.unwrap_or_else(|_| Err(self.client.silent())) {
                Err(error) if error.is_retryable() => error,
                answered => return answered,
            };
            let next = pause.next(&error);
            if Instant::now() + next > until {
                return Err(error);
            }
            log::debug!("publishing again: {error}");
            tokio::time::sleep(next).await;
        }
    }
}

fn with_key(event: NewEvent) -> NewEvent {
    let idempotency_key = event.idempotency_key.or_else(|| Some(random_key()));
    NewEvent { idempotency_key, ..event }
}
