//! The errors of the server, in terms of the domain. Only `http/problem.rs` maps them to status codes
//! and error codes, exhaustively.

use crate::domain::api_key::{KeyScope, TagRefusal};
use crate::domain::event_type::rejection::{RecentEvents, Rejection};
use crate::domain::ids::{DeliveryId, EventId, KeyId, SourceId, SubscriptionId};
use crate::domain::input::InputError;
use crate::domain::invalid::Invalid;
use crate::domain::lease::Refusal;
use crate::domain::publish_limits::LimitExceeded;
use crate::domain::source::Rejection as WebhookRejection;
use crate::domain::status::Status;

/// The reason why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The body is not JSON.
    #[error("malformed JSON: {0}")]
    MalformedJson(String),
    /// Fields are missing, unknown or invalid.
    #[error("{} invalid field(s)", .0.len())]
    Invalid(Vec<Invalid>),
    /// Events do not satisfy what is declared about their types.
    #[error("{} event(s) are rejected", .0.len())]
    EventsRejected(Vec<Rejection>),
    /// A cursor does not fit the request, for this reason.
    #[error("{field} {reason}")]
    CursorMismatch {
        /// `after` or `Last-Event-ID`.
        field: &'static str,
        reason: &'static str,
    },
    /// A field or the body is too large.
    #[error("{field} is larger than {limit} bytes")]
    TooLarge {
        field: String,
        /// The limit in bytes.
        limit: usize,
    },
    #[error("the content type is not application/json")]
    UnsupportedMediaType,
    /// The body is compressed.
    #[error("Content-Encoding must be identity or left out: send the body as it is")]
    ContentEncoding,
    /// The body did not arrive in time.
    #[error("the body did not arrive within {0} seconds")]
    BodyTimeout(u64),
    /// The request carries no key that is known, for this reason.
    #[error("{0}")]
    Unauthenticated(&'static str),
    #[error("the key, or this secret of it, has expired")]
    KeyExpired,
    #[error("the key was revoked")]
    KeyRevoked,
    /// The key does not allow what the request asks for.
    #[error("the key does not have the scope {0}")]
    ScopeMissing(KeyScope),
    /// The key is limited to some tags, and these are not among them.
    #[error("{}", tag_refusal(.0))]
    TagNotAllowed(TagRefusal),
    /// The client's address has sent too many unknown keys, or tokens of sources, or a key has logged in too often.
    #[error(
        "too many unknown keys or tokens came from this address, or too many logins with this key; try again in \
         {retry_after} s"
    )]
    TooManyGuesses {
        /// In seconds.
        retry_after: u64,
    },
    /// The request would exceed a limit of its namespace or key.
    #[error("{0}")]
    LimitExceeded(LimitExceeded),
    #[error("there is no key {0}")]
    KeyNotFound(KeyId),
    #[error("another key is named {0:?}")]
    KeyNameTaken(String),
    #[error("key {0} is revoked or has expired")]
    KeyNotInUse(KeyId),
    #[error("key {0} is the last one in use with the scope admin")]
    LastAdminKey(KeyId),
    /// The maximum number of keys is reached.
    #[error("there are {0} keys already; revoke some that are not needed")]
    TooManyKeys(i64),
    /// An idempotency key was used before, with another content.
    #[error("the idempotency key{} was used before, with another content", item(*index, *of))]
    IdempotencyKeyReused {
        /// The number of the event in its request.
        index: usize,
        /// The number of events in the request.
        of: usize,
    },
    #[error("there is no event {0}")]
    EventNotFound(EventId),
    #[error("there is no webhook with this idempotency key")]
    WebhookNotFound,
    #[error("there is no subscription {0}")]
    SubscriptionNotFound(SubscriptionId),
    #[error("there is no source {0}")]
    SourceNotFound(SourceId),
    /// No active source has the token in the URL of a webhook.
    #[error("no source takes webhooks here")]
    UnknownSourceToken,
    /// A webhook is not proved to be its sender's.
    #[error("the webhook could not be verified: {0}")]
    WebhookRefused(WebhookRejection),
    #[error("the event type {0:?} is not declared")]
    EventTypeNotFound(String),
    #[error("version {version} of the event type {name:?} is not kept")]
    EventTypeVersionNotFound { name: String, version: i32 },
    /// The maximum number of event types is reached.
    #[error("there are {0} event types already, and no more may be declared")]
    TooManyEventTypes(i64),
    /// A new schema rejects recent events of its type.
    #[error("the schema rejects {} of the latest {} events of its type", .0.rejected, .0.checked)]
    SchemaRejectsRecentEvents(RecentEvents),
    #[error("there is no delivery {0}")]
    DeliveryNotFound(DeliveryId),
    #[error("there is no dead letter {0}")]
    DeadLetterNotFound(i64),
    #[error("there is no operation {0}")]
    OperationNotFound(i64),
    #[error("there is no namespace {0}")]
    NamespaceNotFound(String),
    #[error("there is a namespace {0} already")]
    NamespaceExists(String),
    /// The maximum number of namespaces is reached.
    #[error("there are {0} namespaces already, and no more may be added")]
    TooManyNamespaces(i64),
    /// The maximum number of operations is running.
    #[error("{0} operations are running already; wait until some have ended, or cancel some")]
    TooManyOperations(i64),
    /// The dead letter was already replayed, or its subscription was deleted.
    #[error("dead letter {id} cannot be replayed: {why}")]
    NotReplayable { id: i64, why: &'static str },
    /// The maximum number of subscriptions is reached.
    #[error("there are {0} subscriptions already, and no more may be added")]
    TooManySubscriptions(i64),
    /// The maximum number of sources is reached.
    #[error("there are {0} sources already, and no more may be added")]
    TooManySources(i64),
    /// A subscription, a source or a key has the maximum number of secrets in use, because it was rotated too often.
    #[error("{0} secrets are in use already; wait until some have expired")]
    TooManySecrets(i64),
    /// The client's `If-Match` does not name the present version.
    #[error("{what} {id} has version {version}, which If-Match does not name")]
    VersionMismatch {
        /// `subscription` or `source`.
        what: &'static str,
        id: i64,
        version: i32,
    },
    /// The client's `If-Match` does not name the present revision of an event type.
    #[error("the event type {name:?} {}, which If-Match does not name", revision_text(*.revision))]
    RevisionMismatch {
        name: String,
        /// `None` if the type is not declared.
        revision: Option<i32>,
    },
    /// A worker's settlement is refused.
    #[error("refused: {0:?}")]
    Refused(Refusal),
    /// An operator's action is not allowed in the current state.
    #[error("{what} {id} is {}; it would have to be {wanted}", .status.as_str())]
    WrongState {
        /// `event` or `delivery`.
        what: &'static str,
        id: i64,
        /// The current state.
        status: Status,
        /// The required state or states, for the error text.
        wanted: &'static str,
    },
    /// Too many requests are already waiting.
    #[error("too many requests are waiting")]
    Overloaded,
    /// As many streams are open as the server or the namespace may have.
    #[error("{limit} streams are open already, and the {of} may have no more")]
    TooManyStreams {
        limit: usize,
        /// `server` or `namespace`.
        of: &'static str,
    },
    /// The bodies of other requests use all the memory reserved for bodies.
    #[error("the bodies of other requests take all of --request-memory-mb")]
    NoMemory,
    /// The database cannot be used. The request had no effect and will have none.
    #[error("the database is unavailable: {0}")]
    Unavailable(Outage),
    /// The request was sent to the database, and it is unknown whether it took effect.
    #[error("the outcome is unknown: {0}")]
    OutcomeUnknown(String),
    /// A bug in the server.
    #[error("internal error: {0}")]
    Internal(String),
}

/// Names an event of a request, if there are several.
fn item(index: usize, of: usize) -> String {
    if of > 1 { format!(" of events[{index}]") } else { String::new() }
}

fn tag_refusal(refusal: &TagRefusal) -> String {
    match refusal {
        TagRefusal::Tag(tag) => format!("the key does not allow the tag {tag:?}"),
        TagRefusal::NoTag => "the key allows only some tags, and the event has none".into(),
        TagRefusal::NoneOfEvent => "the event has none of the tags that the key allows".into(),
    }
}

fn revision_text(revision: Option<i32>) -> String {
    revision.map_or_else(|| "is not declared".into(), |revision| format!("has revision {revision}"))
}

impl From<TagRefusal> for Error {
    fn from(refusal: TagRefusal) -> Self {
        Error::TagNotAllowed(refusal)
    }
}

impl Error {
    /// Returns an error about one field.
    pub fn invalid(field: impl Into<String>, reason: impl Into<String>) -> Self {
        Error::Invalid(vec![Invalid::new(field, reason)])
    }

    /// Converts the error of a request with a single event, whose fields are those of the request.
    #[must_use]
    pub fn about_one_event(self) -> Self {
        match self {
            Error::EventsRejected(rejections) => {
                Error::Invalid(rejections.into_iter().flat_map(|rejection| rejection.errors).collect())
            }
            other => other,
        }
    }

    /// Returns the error of an unreachable database.
    pub fn unavailable(cause: String) -> Self {
        Error::outage(OutageKind::Unreachable, cause)
    }

    /// Returns the error of a database that cannot be used, for the reason `kind`.
    pub fn outage(kind: OutageKind, cause: impl Into<String>) -> Self {
        Error::Unavailable(Outage { kind, cause: cause.into() })
    }

    /// Returns the same error for another request of the same batch.
    #[must_use]
    pub fn for_another(&self) -> Self {
        match self {
            Error::Unavailable(outage) => Error::Unavailable(outage.clone()),
            Error::OutcomeUnknown(cause) => Error::OutcomeUnknown(cause.clone()),
            Error::Overloaded => Error::Overloaded,
            other => Error::Internal(other.to_string()),
        }
    }

    /// Returns whether the transaction failed because of a concurrent one and may be repeated.
    pub fn is_conflict(&self) -> bool {
        self.is_outage(OutageKind::Conflict)
    }

    /// Returns whether the database cannot be used for the reason `kind`.
    pub fn is_outage(&self, kind: OutageKind) -> bool {
        matches!(self, Error::Unavailable(outage) if outage.kind == kind)
    }

    /// Converts the error of a failed commit: if the connection was lost, the database may have
    /// committed anyway.
    #[must_use]
    pub fn of_commit(self) -> Self {
        match self {
            Error::Unavailable(Outage { kind: OutageKind::Lost, cause }) => Error::OutcomeUnknown(cause),
            other => other,
        }
    }

    /// Converts an error that occurred after a part of the request took effect: the response must not
    /// say that the request had no effect.
    #[must_use]
    pub fn after_a_part(self) -> Self {
        match self {
            Error::Unavailable(outage) => Error::OutcomeUnknown(format!("a part was done, then: {outage}")),
            other => other,
        }
    }
}

/// A database that cannot be used, with the reason.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{cause}")]
pub struct Outage {
    pub kind: OutageKind,
    /// The details, for the log.
    pub cause: String,
}

/// The reason why the database cannot be used. Except for a conflict, no single request causes it, so a failed
/// batch is not split to find one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutageKind {
    /// No connection could be made in time, or the database is stopping, starting or recovering.
    Unreachable,
    /// The database refused the login: wrong password, or unknown database. Or its certificate is not accepted.
    Refused,
    /// The connection was lost while a statement was running.
    Lost,
    /// A lock was not granted in time, or a statement exceeded its timeout.
    TooSlow,
    /// The request's deadline passed before anything was committed.
    TimeUp,
    /// Concurrent transactions conflicted: a serialisation failure or a deadlock. The engine repeats
    /// the transaction before it returns this error.
    Conflict,
    /// The database accepts no writes: it is a standby, or configured as read-only.
    ReadOnly,
    /// The database has run out of disk space.
    DiskFull,
    /// The database has run out of memory, or of space for locks (`max_locks_per_transaction`).
    OutOfMemory,
    /// The database has reached its maximum number of connections.
    TooManyConnections,
    /// The files of the database are missing, or cannot be read or written.
    Broken,
    /// The schema does not belong to this version of the server.
    NotMigrated,
    /// This server is stopping.
    Stopping,
}

impl From<LimitExceeded> for Error {
    fn from(exceeded: LimitExceeded) -> Self {
        Error::LimitExceeded(exceeded)
    }
}

impl From<InputError> for Error {
    fn from(error: InputError) -> Self {
        match error {
            InputError::Malformed(reason) => Error::MalformedJson(reason),
            InputError::Invalid(errors) => Error::Invalid(errors),
            InputError::TooLarge { field, limit } => Error::TooLarge { field, limit },
            InputError::Incomplete => Error::Internal("a field is missing and no error was recorded".into()),
        }
    }
}
