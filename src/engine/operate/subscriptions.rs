//! Subscriptions are created, changed, deactivated and deleted.
//!
//! Each change first gives the catalog a new generation. The row lock of the catalog serialises all changes
//! of subscriptions. The change then locks the row of the subscription, which waits for publishers that are
//! storing pushes for that subscription. A change therefore happens either before a whole publication or
//! after it.
//!
//! A deleted subscription is *drained* in the background: its open pushes are cancelled.

use diesel_async::AsyncPgConnection;
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use crate::domain::actor::ServerActor;
use crate::domain::address::check_url;
use crate::domain::audit::AuditAction::{
    SubscriptionCreated, SubscriptionDeactivated, SubscriptionDeleted, SubscriptionSecretRotated, SubscriptionUpdated,
};
use crate::domain::audit::AuditEntry;
use crate::domain::audit::subscription::{changes_between, shown_settings};
use crate::domain::encryption::{Binding, Field, Owner, StoredText};
use crate::domain::event::NewEvent;
use crate::domain::expected_version::ExpectedVersion;
use crate::domain::ids::{DeliveryId, NamespaceId, SubscriptionId, SubscriptionKey};
use crate::domain::json::RawJson;
use crate::domain::limits;
use crate::domain::matching::Allowance;
use crate::domain::publish_limits::{LimitExceeded, LimitName};
use crate::domain::scope::Scope;
use crate::domain::signature::Secret;
use crate::domain::subscription::SubscriptionSpec;
use crate::error::Error;
use crate::store::tables::audit_log::record_audit;
use crate::store::tables::catalog::renew_generation;
use crate::store::tables::events::{FanOut, Published};
use crate::store::tables::limits::limits_of;
use crate::store::tables::subscriptions::{
    SubscriptionRow, SubscriptionState, count_secrets, count_subscriptions, delete_subscription, find_open_deliveries,
    find_undrained, insert_subscription, lock_subscription, mark_drained, next_subscription_id, replace_secret,
    update_subscription,
};

use crate::engine::change_set::ChangeSet;
use crate::engine::limits::RETRY_STORED_AFTER;
use crate::engine::operate::operator_actions::OperatorAction;
use crate::engine::publish::subscription_cache::SubscriptionSnapshot;
use crate::engine::publish::{in_namespace, publish_in_order};
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
        let spec = SubscriptionSpec::parse(&fields).map_err(Error::Invalid)?;
        self.check_address(&spec)?;
        let (engine, namespace) = (self.clone(), scope.namespace);
        let row = self.detached(async move {
            transaction!(engine, |conn| {
                renew_generation(conn, &scope).await?;
                let count = count_subscriptions(conn, &scope).await?;
                if count >= engine.settings().max_subscriptions {
                    return Err(Error::TooManySubscriptions(engine.settings().max_subscriptions));
                }
                if limits_of(conn, scope.namespace).await?.subscriptions.is_some_and(|limit| count >= limit) {
                    return Err(LimitExceeded::of_namespace(LimitName::Subscriptions, RETRY_STORED_AFTER).into());
                }
                let id = next_subscription_id(conn).await?;
                let owner = Owner::Subscription(scope.namespace.subscription(id));
                let json = engine.to_stored(spec.clone(), owner)?;
                let state = SubscriptionState { url: &spec.url, spec: &json, is_active, inactive_reason: None };
                let row = insert_subscription(conn, &scope, id, &state).await?;
                replace_secret(conn, &scope, id, &engine.encrypt_secret(&secret, owner)?, 0.0).await?;
                let detail = json!({"settings": shown_settings(&spec.to_json()), "is_active": is_active});
                record_audit(conn, &scope, &AuditEntry::about(SubscriptionCreated, row.id.0, detail)).await?;
                Ok(row)
            })
        });
        let row = row.await?;
        self.after_change(namespace.subscription(row.id)).await;
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
        let (engine, namespace) = (self.clone(), scope.namespace);
        let row = self.detached(async move {
            transaction!(engine, |conn| {
                renew_generation(conn, &scope).await?;
                let row = lock(conn, &scope, id, &expected).await?;
                let present = fields_of(&row)?;
                let spec =
                    SubscriptionSpec::changed(present.clone(), changes.fields.clone()).map_err(Error::Invalid)?;
                // An unchanged URL was checked before and is checked again at each connection. Checking it
                // here could prevent the deactivation of a subscription whose URL is no longer allowed.
                if changes.fields.contains_key("url") {
                    engine.check_address(&spec)?;
                }
                let owner = Owner::Subscription(scope.namespace.subscription(id));
                let json = engine.to_stored(spec.clone(), owner)?;
                let is_active = changes.is_active.unwrap_or(row.is_active);
                let inactive_reason = row.inactive_reason.as_deref().filter(|_| !is_active);
                let state = SubscriptionState { url: &spec.url, spec: &json, is_active, inactive_reason };
                let updated = update_subscription(conn, &scope, id, &state).await?;
                let mut changed = changes_between(&present, &spec.to_json());
                if is_active != row.is_active {
                    changed.insert("is_active".into(), json!({"from": row.is_active, "to": is_active}));
                }
                let detail = json!({"version": updated.version, "changes": changed});
                record_audit(conn, &scope, &AuditEntry::about(SubscriptionUpdated, id.0, detail)).await?;
                Ok(updated)
            })
        });
        let row = row.await?;
        self.after_change(namespace.subscription(id)).await;
        Ok(row)
    }

    /// Deletes a subscription. Its open pushes are cancelled in the background.
    pub async fn delete_subscription(
        &self,
        scope: Scope,
        id: SubscriptionId,
        expected: ExpectedVersion,
    ) -> Result<(), Error> {
        let (engine, namespace) = (self.clone(), scope.namespace);
        let deleted = self.detached(async move {
            transaction!(engine, |conn| {
                renew_generation(conn, &scope).await?;
                let row = lock(conn, &scope, id, &expected).await?;
                delete_subscription(conn, &scope, id).await?;
                let detail = json!({"settings": shown_settings(&fields_of(&row)?)});
                record_audit(conn, &scope, &AuditEntry::about(SubscriptionDeleted, id.0, detail)).await?;
                Ok(())
            })
        });
        deleted.await?;
        self.after_change(namespace.subscription(id)).await;
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
        let (engine, namespace) = (self.clone(), scope.namespace);
        let row = self.detached(async move {
            transaction!(engine, |conn| {
                renew_generation(conn, &scope).await?;
                let row = lock(conn, &scope, id, &expected).await?;
                let SecretRotation { secret, overlap_seconds } = &rotation;
                let owner = Owner::Subscription(scope.namespace.subscription(id));
                replace_secret(conn, &scope, id, &engine.encrypt_secret(secret, owner)?, *overlap_seconds).await?;
                if count_secrets(conn, &scope, id).await? > limits::SECRETS {
                    return Err(Error::TooManySecrets(limits::SECRETS));
                }
                let updated = update_subscription(conn, &scope, id, &state_of(&row)).await?;
                let detail = json!({"version": updated.version, "overlap_seconds": overlap_seconds});
                record_audit(conn, &scope, &AuditEntry::about(SubscriptionSecretRotated, id.0, detail)).await?;
                Ok(updated)
            })
        });
        let row = row.await?;
        self.after_change(namespace.subscription(id)).await;
        Ok(row)
    }

    /// Deactivates a subscription because of a response of its endpoint, and publishes a notice. Does nothing
    /// if the subscription no longer has this URL.
    pub async fn deactivate_subscription(
        &self,
        subscription: SubscriptionKey,
        url: &str,
        reason: &'static str,
    ) -> Result<(), Error> {
        let SubscriptionKey { namespace, id } = subscription;
        let scope = self.scope_of(namespace).of_service(ServerActor::Dispatcher);
        let (engine, url) = (self.clone(), url.to_owned());
        let deactivated = self.detached(async move {
            let notices = transaction!(engine, |conn| {
                renew_generation(conn, &scope).await?;
                let Some(row) = lock_subscription(conn, &scope, id).await? else { return Ok(None) };
                if !row.is_active || row.url != url {
                    return Ok(None);
                }
                let state = SubscriptionState { is_active: false, inactive_reason: Some(reason), ..state_of(&row) };
                let row = update_subscription(conn, &scope, id, &state).await?;
                let detail = json!({"version": row.version, "reason": reason});
                record_audit(conn, &scope, &AuditEntry::about(SubscriptionDeactivated, id.0, detail)).await?;
                Ok(Some(publish_notices(conn, &engine, namespace, vec![notice("deactivated", &row, reason)]).await?))
            })?;
            if let Some(notices) = notices {
                log::warn!(subscription_id = id, reason; "a subscription was switched off");
                engine.notify_after_notices(notices);
            }
            Ok(())
        });
        deactivated.await?;
        self.after_change(namespace.subscription(id)).await;
        Ok(())
    }

    /// Cancels the open pushes of one deleted subscription. Returns whether there was one; if so, there may
    /// be more. One pass is enough: a deleted subscription receives no new pushes, and none of its pushes
    /// can be retried or replayed.
    pub async fn drain_subscriptions(&self) -> Result<bool, Error> {
        let mut conn = self.database().connection().await?;
        let Some(SubscriptionKey { namespace, id }) = find_undrained(&mut conn).await? else { return Ok(false) };
        drop(conn);
        let scope = self.scope_of(namespace);
        let mut after = DeliveryId(0);
        loop {
            let mut conn = self.database().connection().await?;
            let page = find_open_deliveries(&mut conn, &scope, id, after, DRAIN_READ_ROWS).await?;
            drop(conn);
            for open in page.open.chunks(DRAIN_ROWS) {
                let began = Instant::now();
                self.cancel_pushes(&scope, open).await?;
                self.yield_to_workers(began.elapsed()).await;
            }
            let Some(last) = page.last else { break };
            after = last;
        }
        let mut conn = self.database().connection().await?;
        mark_drained(&mut conn, &scope, id).await?;
        Ok(true)
    }

    /// Cancels pushes of a deleted subscription. For pushes in flight, only a request is recorded; they end
    /// with their attempt.
    async fn cancel_pushes(&self, scope: &Scope, ids: &[DeliveryId]) -> Result<(), Error> {
        let cancel = OperatorAction::Cancel { reason: Some("subscription_deleted".into()) };
        let applied = transaction!(self, |conn| {
            let scope = scope.clone().of_service(ServerActor::SubscriptionDrainer);
            let mut changes = ChangeSet::load(conn, &scope, ids).await?;
            // Some pushes may have ended before they were locked.
            for push in changes.keys_where(|loaded| !loaded.delivery.status.is_finished()) {
                cancel.carry_out(&mut changes, push);
            }
            changes.apply(conn).await
        })?;
        self.notify_after_commit(&applied);
        Ok(())
    }

    /// Returns the settings of a subscription as they are stored. Headers that are plain are encrypted.
    fn to_stored(&self, mut spec: SubscriptionSpec, owner: Owner) -> Result<RawJson, Error> {
        spec.encrypt_headers(&self.settings().secret_keys, owner).map_err(Error::Internal)?;
        RawJson::of(&spec.to_json()).map_err(|error| Error::Internal(error.to_string()))
    }

    /// Returns a secret as it is stored.
    fn encrypt_secret(&self, secret: &Secret, owner: Owner) -> Result<StoredText, Error> {
        let binding = Binding { owner, field: Field::Secret };
        self.settings().secret_keys.encrypt(&secret.as_text(), &binding).map_err(Error::Internal)
    }

    fn check_address(&self, spec: &SubscriptionSpec) -> Result<(), Error> {
        check_url(&spec.url, &self.settings().webhook_allow).map_err(|reason| Error::invalid("url", reason))
    }

    /// Reloads the snapshot of this server at once and signals the dispatcher. Other servers notice the new
    /// generation when they use their snapshot.
    async fn after_change(&self, subscription: SubscriptionKey) {
        self.reload_after_change(subscription.namespace).await;
        self.dispatch_signal().signal(Some(subscription));
    }

    /// Wakes waiters and updates due times and metrics after notices were published. Call this after the
    /// commit.
    pub(crate) fn notify_after_notices(&self, notices: Notices) {
        let Notices { namespace, events, fan_out, published, released } = notices;
        self.notify_after_publish(&in_namespace(namespace, &events, 0), &fan_out, &published, released);
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
    if expected.includes(row.version) {
        Ok(row)
    } else {
        Err(Error::VersionMismatch { what: "subscription", id: id.0, version: row.version })
    }
}

fn state_of(row: &SubscriptionRow) -> SubscriptionState<'_> {
    SubscriptionState {
        url: &row.url,
        spec: &row.spec.0,
        is_active: row.is_active,
        inactive_reason: row.inactive_reason.as_deref(),
    }
}

fn fields_of(row: &SubscriptionRow) -> Result<Map<String, Value>, Error> {
    serde_json::from_str(row.spec.0.as_str()).map_err(|error| Error::Internal(error.to_string()))
}

/// Events about subscriptions that the server itself has published, to be followed by
/// [`Engine::notify_after_notices`].
pub(crate) struct Notices {
    namespace: NamespaceId,
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

/// Publishes notices in a namespace, in a transaction of the caller's. They are matched against the subscriptions that this
/// transaction sees, including its own changes that are not committed yet.
pub(crate) async fn publish_notices(
    conn: &mut AsyncPgConnection,
    engine: &Engine,
    namespace: NamespaceId,
    events: Vec<NewEvent>,
) -> Result<Notices, Error> {
    for _ in 0..NOTICE_MATCHES {
        let snapshot = SubscriptionSnapshot::load(conn, namespace).await?;
        let fan_out = snapshot.fan_out(&events, engine.time(), &mut Allowance::unlimited());
        // An unlimited allowance is never used up.
        let fan_out = fan_out.map_err(|_| Error::Internal("matching stopped without a limit".into()))?;
        if let Some((published, released)) =
            publish_in_order(conn, engine, &in_namespace(namespace, &events, 0), &fan_out).await?
        {
            return Ok(Notices { namespace, events, fan_out, published, released });
        }
    }
    Err(Error::unavailable("the subscriptions keep changing".into()))
}
