//! Entries of the audit log: what was changed that is not about one event, and by whom.
//!
//! The event log records what happens to events. The audit log records what people do to the server: to
//! subscriptions, sources, keys, namespaces, event types and operations. Its entries contain no secret. [`subscription`]
//! decides what of a subscription may be shown.

pub(crate) mod subscription;

use serde::Serialize;
use serde_json::{Map, Value, json};

/// The maximum size of one value in the detail of an entry. A longer one is replaced by its size.
const MAX_VALUE_BYTES: usize = 1024;

/// The maximum size of the whole detail.
const MAX_DETAIL_BYTES: usize = 64 * 1024;

/// What was done. The names are part of the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum AuditAction {
    SubscriptionCreated,
    SubscriptionUpdated,
    /// The server switched the subscription off because of a response of its endpoint.
    SubscriptionDeactivated,
    SubscriptionDeleted,
    /// The pause of the endpoint was ended and its circuit breaker closed.
    SubscriptionResumed,
    SubscriptionSecretRotated,
    SourceCreated,
    SourceUpdated,
    SourceDeleted,
    SourceSecretRotated,
    KeyCreated,
    KeyUpdated,
    KeyRotated,
    KeyRevoked,
    /// The holder of a key has begun a session in a browser.
    KeyLoggedIn,
    KeyLoggedOut,
    NamespaceCreated,
    NamespaceUpdated,
    EventTypeCreated,
    EventTypeUpdated,
    EventTypeDeleted,
    /// The secrets in the tables were encrypted with another key.
    SecretsRotated,
    /// An operation on many rows was started.
    OperationStarted,
    /// An operation on many rows was stopped.
    OperationCancelled,
    /// Calls were refused. One entry counts the calls of a minute with the same actor, address and reason.
    CallsRefused,
}

impl AuditAction {
    /// All actions, in the order of the API documentation.
    pub const ALL: [AuditAction; 25] = [
        AuditAction::SubscriptionCreated,
        AuditAction::SubscriptionUpdated,
        AuditAction::SubscriptionDeactivated,
        AuditAction::SubscriptionDeleted,
        AuditAction::SubscriptionResumed,
        AuditAction::SubscriptionSecretRotated,
        AuditAction::SourceCreated,
        AuditAction::SourceUpdated,
        AuditAction::SourceDeleted,
        AuditAction::SourceSecretRotated,
        AuditAction::KeyCreated,
        AuditAction::KeyUpdated,
        AuditAction::KeyRotated,
        AuditAction::KeyRevoked,
        AuditAction::KeyLoggedIn,
        AuditAction::KeyLoggedOut,
        AuditAction::NamespaceCreated,
        AuditAction::NamespaceUpdated,
        AuditAction::EventTypeCreated,
        AuditAction::EventTypeUpdated,
        AuditAction::EventTypeDeleted,
        AuditAction::SecretsRotated,
        AuditAction::OperationStarted,
        AuditAction::OperationCancelled,
        AuditAction::CallsRefused,
    ];

    /// Returns the name used in the database and in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            AuditAction::SubscriptionCreated => "subscription.created",
            AuditAction::SubscriptionUpdated => "subscription.updated",
            AuditAction::SubscriptionDeactivated => "subscription.deactivated",
            AuditAction::SubscriptionDeleted => "subscription.deleted",
            AuditAction::SubscriptionResumed => "subscription.resumed",
            AuditAction::SubscriptionSecretRotated => "subscription.secret_rotated",
            AuditAction::SourceCreated => "source.created",
            AuditAction::SourceUpdated => "source.updated",
            AuditAction::SourceDeleted => "source.deleted",
            AuditAction::SourceSecretRotated => "source.secret_rotated",
            AuditAction::KeyCreated => "key.created",
            AuditAction::KeyUpdated => "key.updated",
            AuditAction::KeyRotated => "key.rotated",
            AuditAction::KeyRevoked => "key.revoked",
            AuditAction::KeyLoggedIn => "key.logged_in",
            AuditAction::KeyLoggedOut => "key.logged_out",
            AuditAction::NamespaceCreated => "namespace.created",
            AuditAction::NamespaceUpdated => "namespace.updated",
            AuditAction::EventTypeCreated => "event_type.created",
            AuditAction::EventTypeUpdated => "event_type.updated",
            AuditAction::EventTypeDeleted => "event_type.deleted",
            AuditAction::SecretsRotated => "secrets.rotated",
            AuditAction::OperationStarted => "operation.started",
            AuditAction::OperationCancelled => "operation.cancelled",
            AuditAction::CallsRefused => "calls.refused",
        }
    }

    /// Parses a name, or returns `None` if it is unknown.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|action| action.as_str() == name)
    }

    /// Returns what the id of the subject is an id of, or `None` if the action has no single subject.
    pub fn subject_kind(self) -> Option<&'static str> {
        let (kind, _) = self.as_str().split_once('.')?;
        (!matches!(self, AuditAction::SecretsRotated | AuditAction::CallsRefused)).then_some(kind)
    }
}

/// An entry that is about to be written, in the transaction of the change.
#[derive(Debug, Clone)]
pub struct AuditEntry {
    pub action: AuditAction,
    /// The id of the subscription, source, key, namespace, event type or operation.
    pub subject_id: Option<i64>,
    /// What changed, without secrets.
    pub detail: Map<String, Value>,
}

impl AuditEntry {
    /// Returns an entry about a subject. `detail` must be an object.
    pub fn about(action: AuditAction, subject_id: impl Into<i64>, detail: Value) -> Self {
        let detail = detail.as_object().cloned().unwrap_or_default();
        AuditEntry { action, subject_id: Some(subject_id.into()), detail }
    }

    /// Returns the detail as JSON of a limited size.
    pub(crate) fn bounded_detail(&self) -> Value {
        let detail: Map<String, Value> =
            self.detail.iter().map(|(name, value)| (name.clone(), bounded(value, MAX_DETAIL_BYTES))).collect();
        bounded(&Value::Object(detail), MAX_DETAIL_BYTES)
    }
}

/// Returns a value, or its size if it is a long one.
fn bounded(value: &Value, max_bytes: usize) -> Value {
    match value.to_string().len() {
        bytes if bytes > max_bytes => json!({"omitted_bytes": bytes}),
        _ => value.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_parsed_as_its_action() {
        for action in AuditAction::ALL {
            assert_eq!(AuditAction::parse(action.as_str()), Some(action));
        }
        assert_eq!(AuditAction::parse("subscription"), None);
    }

    #[test]
    fn the_subject_is_named_by_the_first_word() {
        assert_eq!(AuditAction::KeyRevoked.subject_kind(), Some("key"));
        assert_eq!(AuditAction::SubscriptionSecretRotated.subject_kind(), Some("subscription"));
        assert_eq!(AuditAction::CallsRefused.subject_kind(), None);
    }

    #[test]
    fn a_detail_is_never_longer_than_its_limit() {
        let long = "x".repeat(MAX_DETAIL_BYTES / 2);
        let entry = AuditEntry::about(AuditAction::KeyCreated, 1, json!({"a": 1, "b": long}));
        assert_eq!(entry.bounded_detail()["a"], 1);
        let entry = AuditEntry::about(AuditAction::KeyCreated, 1, json!({"a": 1, "b": long, "c": long}));
        assert!(entry.bounded_detail()["omitted_bytes"].as_u64() > Some(MAX_DETAIL_BYTES as u64));
        let longer = "x".repeat(MAX_DETAIL_BYTES);
        let entry = AuditEntry::about(AuditAction::KeyCreated, 1, json!({"a": 1, "b": longer}));
        assert_eq!(entry.bounded_detail()["a"], 1);
        assert!(entry.bounded_detail()["b"]["omitted_bytes"].is_u64());
    }
}
