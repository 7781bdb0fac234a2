//! Subscriptions are created, changed, deactivated and deleted.
//!
//! Each change first gives the catalog a new generation. The row lock of the catalog serialises all changes
//! of subscriptions. The change then locks the row of the subscription, which waits for publishers that are
//! storing pushes for that subscription. A change therefore happens either before a whole publication or
//! after it.
//!
//! A deleted subscription is *drained* in the background: its open pushes are cancelled.

use diesel_async::AsyncPgConnection;
use serde_json::{Map, Value};
use tokio::time::Instant;

use crate::domain::address::check_url;
use crate::domain::event::NewEvent;
use crate::domain::expected_version::ExpectedVersion;
use crate::domain::ids::{DeliveryId, SubscriptionId};
use crate::domain::json::RawJson;
use crate::domain::limits;
use crate::domain::matching::Allowance;
use crate::domain::scope::Scope;
use crate::domain::signature::Secret;
use crate::domain::subscription::{SubscriptionSpec, headers};
use crate::error::Error;
use crate::store::tables::catalog::renew_generation;
use crate::store::tables::events::{FanOut, Published};
use crate::store::tables::subscriptions::{
    SubscriptionRow, SubscriptionState, count_secrets, count_subscriptions, delete_subscription, find_open_deliveries,
    find_undrained, insert_subscription, lock_subscription, mark_drained, replace_secret, update_subscription,
};

use crate::engine::change_set::ChangeSet;
use crate::engine::operate::operator_actions::OperatorAction;
use crate::engine::publish::publish_in_order;
use crate::engine::publish::subscription_cache::SubscriptionSnapshot;
use crate::engine::{Engine, ReadyEntry, transaction};

/// The number of times that a notice is matched before its publication fails.
const NOTICE_MATCHES: usize = 5;

/// The number of pushes of a deleted subscription that one transaction cancels.
const DRAIN_ROWS: usize = 500;

/// The number of pushes of a deleted subscription, open or finished, that one statement reads.
const DRAIN_READ_ROWS: i64 = 5_000;

/// The changes that a subscriber requests.
#[derive(Debug, Clone, Default)]
pub struct SubscriptionChanges {
    /// Fields and their new values. `null` restores the default. Headers are merged into the present ones.
    pub fields: Map<String, Value>,
    pub is_active: Option<bool>,
}

/// A new secret of a subscription.
#[derive(Debug, Clone)]
pub struct SecretRotation {
    pub secret: Secret,
    /// For how long pushes are signed with the old secrets too.
    pub overlap_seconds: f64,
}

impl Engine {
    pub async fn create_subscription(
        &self,
        scope: Scope,
        fields: Map<String, Value>,
        secret: Secret,
        is_active: bool,
    ) -> Result<SubscriptionRow, Error> {
        let (spec, json) = read_spec(&fields)?;
        self.check_address(&spec)?;
        let engine = self.clone();
        let row = self.detached(async move {
            transaction!(engine, |conn| {
                renew_generation(conn, &scope).await?;
                if count_subscriptions(conn, &scope).await? >= engine.settings().max_subscriptions {
                    return Err(Error::TooManySubscriptions(engine.settings().max_subscriptions));
                }
                let state = SubscriptionState { url: &spec.url, spec: &json, is_active, inactive_reason: None };
                let row = insert_subscription(conn, &scope, &state).await?;
                replace_secret(conn, &scope, row.id, &secret.as_text(), 0.0).await?;
                Ok(row)
            })
        });
        let row = row.await?;
        self.after_change(row.id).await;
        Ok(row)
    }

    /// Changes a subscription. Pushes that are not sent yet are sent with the new configuration.
    pub async fn update_subscription(
        &self,
        scope: Scope,
        id: SubscriptionId,
        expected: ExpectedVersion,
        changes: SubscriptionChanges,
    ) -> Result<SubscriptionRow, Error> {
        let engine = self.clone();
        let row = self.detached(async move {
            transaction!(engine, |conn| {
                renew_generation(conn, &scope).await?;
                let row = lock(conn, &scope, id, &expected).await?;
                let (spec, json) = read_spec(&merge(fields_of(&row)?, changes.fields.clone()))?;
                // An unchanged URL was checked before and is checked again at each connection. Checking it
                // here could prevent the deactivation of a subscription whose URL is no longer allowed.
                if changes.fields.contains_key("url") {
                    engine.check_address(&spec)?;
                }
                let is_active = changes.is_active.unwrap_or(row.is_active);
                let inactive_reason = row.inactive_reason.as_deref().filter(|_| !is_active);
                let state = SubscriptionState { url: &spec.url, spec: &json, is_active, inactive_reason };
                Ok(update_subscription(conn, &scope, id, &state).await?)
            })
        });
        let row = row.await?;
        self.after_change(id).await;
        Ok(row)
    }

    /// Deletes a subscription. Its open pushes are cancelled in the background.
    pub async fn delete_subscription(
        &self,
        scope: Scope,
        id: SubscriptionId,
        expected: ExpectedVersion,
    ) -> Result<(), Error> {
        let engine = self.clone();
        let deleted = self.detached(async move {
            transaction!(engine, |conn| {
                renew_generation(conn, &scope).await?;
                lock(conn, &scope, id, &expected).await?;
                delete_subscription(conn, &scope, id).await?;
                Ok(())
            })
        });
        deleted.await?;
        self.after_change(id).await;
        Ok(())
    }

    /// Gives a subscription a new secret.
    pub async fn rotate_subscription_secret(
        &self,
        scope: Scope,
        id: SubscriptionId,
        expected: ExpectedVersion,
        rotation: SecretRotation,
    ) -> Result<SubscriptionRow, Error> {
        let engine = self.clone();
        let row = self.detached(async move {
            transaction!(engine, |conn| {
                renew_generation(conn, &scope).await?;
                let row = lock(conn, &scope, id, &expected).await?;
                let SecretRotation { secret, overlap_seconds } = &rotation;
                replace_secret(conn, &scope, id, &secret.as_text(), *overlap_seconds).await?;
                if count_secrets(conn, &scope, id).await? > limits::SECRETS {
                    return Err(Error::TooManySecrets(limits::SECRETS));
                }
                Ok(update_subscription(conn, &scope, id, &state_of(&row)).await?)
            })
        });
        let row = row.await?;
        self.after_change(id).await;
        Ok(row)
    }

    /// Deactivates a subscription because of a response of its endpoint, and publishes a notice. Does nothing
    /// if the subscription no longer has this URL.
    pub async fn deactivate_subscription(
        &self,
        id: SubscriptionId,
        url: &str,
        reason: &'static str,
    ) -> Result<(), Error> {
        let (engine, scope, url) = (self.clone(), self.scope(), url.to_owned());
        let deactivated = self.detached(async move {
            let notices = transaction!(engine, |conn| {
                renew_generation(conn, &scope).await?;
                let Some(row) = lock_subscription(conn, &scope, id).await? else { return Ok(None) };
                if !row.is_active || row.url != url {
                    return Ok(None);
                }
                let state = SubscriptionState { is_active: false, inactive_reason: Some(reason), ..state_of(&row) };
                let row = update_subscription(conn, &scope, id, &state).await?;
                Ok(Some(publish_notices(conn, &engine, vec![notice("deactivated", &row, reason)]).await?))
            })?;
            if let Some(notices) = notices {
                log::warn!(subscription_id = id, reason; "a subscription was switched off");
                engine.notify_after_notices(notices);
            }
            Ok(())
        });
        deactivated.await?;
        self.after_change(id).await;
        Ok(())
    }

    /// Cancels the open pushes of one deleted subscription. Returns whether there was one; if so, there may
    /// be more. One pass is enough: a deleted subscription receives no new pushes, and none of its pushes
    /// can be retried or replayed.
    pub async fn drain_subscriptions(&self) -> Result<bool, Error> {
        let scope = self.scope();
        let mut conn = self.database().connection().await?;
        let Some(id) = find_undrained(&mut conn, &scope).await? else { return Ok(false) };
        drop(conn);
        let mut after = DeliveryId(0);
        loop {
            let mut conn = self.database().connection().await?;
            let page = find_open_deliveries(&mut conn, &scope, id, after, DRAIN_READ_ROWS).await?;
            drop(conn);
            for open in page.open.chunks(DRAIN_ROWS) {
                let began = Instant::now();
                self.cancel_pushes(open).await?;
                self.yield_to_workers(began.elapsed()).await;
            }
            let Some(last) = page.last else { break };
            after = last;
        }
        let mut conn = self.database().connection().await?;
        mark_drained(&mut conn, &self.scope(), id).await?;
        Ok(true)
    }

    /// Cancels pushes of a deleted subscription. For pushes in flight, only a request is recorded; they end
    /// with their attempt.
    async fn cancel_pushes(&self, ids: &[DeliveryId]) -> Result<(), Error> {
        let cancel = OperatorAction::Cancel { reason: Some("subscription_deleted".into()) };
        let applied = transaction!(self, |conn| {
            let mut changes = ChangeSet::load(conn, &self.scope(), ids).await?;
            // Some pushes may have ended before they were locked.
            for id in changes.ids_where(|loaded| !loaded.delivery.status.is_finished()) {
                cancel.carry_out(&mut changes, id);
            }
            changes.apply(conn).await
        })?;
        self.notify_after_commit(&applied);
        Ok(())
    }

    fn check_address(&self, spec: &SubscriptionSpec) -> Result<(), Error> {
        check_url(&spec.url, &self.settings().webhook_allow).map_err(|reason| Error::invalid("url", reason))
    }

    /// Reloads the snapshot of this server at once and signals the dispatcher. Other servers notice the new
    /// generation when they use their snapshot.
    async fn after_change(&self, id: SubscriptionId) {
        if let Err(error) = self.reload_subscribers().await {
            log::warn!("the subscriptions could not be reloaded: {error}");
        }
        self.dispatch_signal().signal(Some(id));
    }

    /// Wakes waiters and updates due times and metrics after notices were published. Call this after the
    /// commit.
    pub(crate) fn notify_after_notices(&self, notices: Notices) {
        let Notices { events, fan_out, published, released } = notices;
        self.notify_after_publish(&events.iter().collect::<Vec<_>>(), &fan_out, &published, released);
    }
}

/// Locks a subscription. Returns an error if its version is not one that the client expects. The version cannot
/// change until the transaction ends.
async fn lock(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    id: SubscriptionId,
    expected: &ExpectedVersion,
) -> Result<SubscriptionRow, Error> {
    let row = lock_subscription(conn, scope, id).await?.ok_or(Error::SubscriptionNotFound(id))?;
    if expected.includes(row.version) { Ok(row) } else { Err(Error::VersionMismatch { id, version: row.version }) }
}

fn state_of(row: &SubscriptionRow) -> SubscriptionState<'_> {
    SubscriptionState {
        url: &row.url,
        spec: &row.spec.0,
        is_active: row.is_active,
        inactive_reason: row.inactive_reason.as_deref(),
    }
}

/// Returns the present fields of a subscription with the given ones in their place. Headers are merged by name,
/// because a client cannot read the values that it wants to keep.
fn merge(mut present: Map<String, Value>, mut given: Map<String, Value>) -> Map<String, Value> {
    if let (Some(Value::Object(kept)), Some(Value::Object(changes))) =
        (present.get_mut("headers"), given.get_mut("headers"))
    {
        let mut merged = std::mem::take(kept);
        headers::merge(&mut merged, std::mem::take(changes));
        *changes = merged;
    }
    present.extend(given);
    present
}

fn read_spec(fields: &Map<String, Value>) -> Result<(SubscriptionSpec, RawJson), Error> {
    let spec = SubscriptionSpec::parse(fields).map_err(Error::Invalid)?;
    let json = RawJson::of(&spec.to_json()).map_err(|error| Error::Internal(error.to_string()))?;
    Ok((spec, json))
}

fn fields_of(row: &SubscriptionRow) -> Result<Map<String, Value>, Error> {
    serde_json::from_str(row.spec.0.as_str()).map_err(|error| Error::Internal(error.to_string()))
}

/// Events about subscriptions that the server itself has published, to be followed by
/// [`Engine::notify_after_notices`].
pub(crate) struct Notices {
    events: Vec<NewEvent>,
    fan_out: FanOut,
    published: Published,
    released: Vec<ReadyEntry>,
}

/// Returns an event about a subscription, of the type `waybill.subscription.<what>`.
pub(crate) fn notice(what: &str, row: &SubscriptionRow, reason: &str) -> NewEvent {
    let name = fields_of(row).ok().and_then(|fields| fields.get("name").cloned()).unwrap_or_default();
    let payload = serde_json::json!({"subscription_id": row.id, "name": name, "url": row.url, "reason": reason});
    let event_type = format!("waybill.subscription.{what}");
    NewEvent {
        event_type: Some(event_type.clone()),
        labels: [("subscription_id".to_owned(), row.id.to_string())].into(),
        payload: RawJson::of(&payload).ok(),
        ..NewEvent::titled(event_type)
    }
}

/// Publishes notices in a transaction of the caller's. They are matched against the subscriptions that this
/// transaction sees, including its own changes that are not committed yet.
pub(crate) async fn publish_notices(
    conn: &mut AsyncPgConnection,
    engine: &Engine,
    events: Vec<NewEvent>,
) -> Result<Notices, Error> {
    let borrowed: Vec<&NewEvent> = events.iter().collect();
    for _ in 0..NOTICE_MATCHES {
        let fan_out = SubscriptionSnapshot::load(conn, &engine.scope()).await?.fan_out(
            &events,
            engine.time(),
            &mut Allowance::unlimited(),
        );
        // An unlimited allowance is never used up.
        let fan_out = fan_out.map_err(|_| Error::Internal("matching stopped without a limit".into()))?;
        if let Some((published, released)) = publish_in_order(conn, engine, &borrowed, &fan_out).await? {
            return Ok(Notices { events, fan_out, published, released });
        }
    }
    Err(Error::unavailable("the subscriptions keep changing".into()))
}
