//! What can go wrong, in the words of the domain. `http/problem.rs` turns each into a status
//! and a code, exhaustively; nothing else does.

use crate::domain::ids::{DeliveryId, EventId, SubscriptionId};
use crate::domain::input::InputError;
use crate::domain::invalid::Invalid;
use crate::domain::lease::Refusal;
use crate::domain::status::Status;

/// Why a call did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The body is no JSON at all.
    #[error("malformed JSON: {0}")]
    MalformedJson(String),
    /// Fields that are missing, unknown or wrong.
    #[error("{} invalid field(s)", .0.len())]
    Invalid(Vec<Invalid>),
    /// More bytes than allowed.
    #[error("{field} is larger than {limit} bytes")]
    TooLarge {
        /// What is too large.
        field: String,
        /// The limit in bytes.
        limit: usize,
    },
    /// Not `application/json`.
    #[error("the content type is not application/json")]
    UnsupportedMediaType,
    /// The body is compressed.
    #[error("Content-Encoding must be identity or left out: send the body as it is")]
    ContentEncoding,
    /// The body did not arrive in time.
    #[error("the body did not arrive within {0} seconds")]
    BodyTimeout(u64),
    /// No such event.
    #[error("there is no event {0}")]
    EventNotFound(EventId),
    /// No such subscription.
    #[error("there is no subscription {0}")]
    SubscriptionNotFound(SubscriptionId),
    /// No such delivery.
    #[error("there is no delivery {0}")]
    DeliveryNotFound(DeliveryId),
    /// No such dead letter.
    #[error("there is no dead letter {0}")]
    DeadLetterNotFound(i64),
    /// No such replay.
    #[error("there is no replay {0}")]
    ReplayNotFound(i64),
    /// A dead letter was sent again already, or its subscription is gone.
    #[error("dead letter {id} cannot be replayed: {why}")]
    NotReplayable {
        /// The dead letter.
        id: i64,
        /// Why not.
        why: &'static str,
    },
    /// As many subscriptions as there may be.
    #[error("there are {0} subscriptions already, and no more may be added")]
    TooManySubscriptions(i64),
    /// Rotated too often in too short a time.
    #[error("{0} secrets are in use already; wait until some have expired")]
    TooManySecrets(i64),
    /// A worker's word does not count.
    #[error("refused: {0:?}")]
    Refused(Refusal),
    /// An operator's word does not fit the state.
    #[error("{what} {id} is {}; it would have to be {wanted}", .status.as_str())]
    WrongState {
        /// `event` or `delivery`.
        what: &'static str,
        /// Which.
        id: i64,
        /// Where it stands.
        status: Status,
        /// Where it would have to stand.
        wanted: &'static str,
    },
    /// Too many callers wait already.
    #[error("too many requests are waiting")]
    Overloaded,
    /// The bodies of other requests take all the memory there is for bodies.
    #[error("the bodies of other requests take all of --request-memory-mb")]
    NoMemory,
    /// The database cannot be used. What was asked for has not been done, and will not be.
    #[error("the database is unavailable: {0}")]
    Unavailable(Outage),
    /// What was asked for was sent to the database, and whether it was done is not known.
    #[error("the outcome is unknown: {0}")]
    OutcomeUnknown(String),
    /// A fault of ours.
    #[error("internal error: {0}")]
    Internal(String),
}

impl Error {
    /// One field is wrong.
    pub fn invalid(field: impl Into<String>, reason: impl Into<String>) -> Self {
        Error::Invalid(vec![Invalid::new(field, reason)])
    }

    /// The database is away.
    pub fn unavailable(cause: String) -> Self {
        Error::outage(OutageKind::Unreachable, cause)
    }

    /// The database cannot be used, for this reason.
    pub fn outage(kind: OutageKind, cause: impl Into<String>) -> Self {
        Error::Unavailable(Outage { kind, cause: cause.into() })
    }

    /// The same, for another caller of the same batch.
    #[must_use]
    pub fn for_another(&self) -> Self {
        match self {
            Error::Unavailable(outage) => Error::Unavailable(outage.clone()),
            Error::OutcomeUnknown(cause) => Error::OutcomeUnknown(cause.clone()),
            Error::Overloaded => Error::Overloaded,
            other => Error::Internal(other.to_string()),
        }
    }

    /// Whether the transaction was the victim of another one and may simply be run again.
    pub fn is_conflict(&self) -> bool {
        self.is_outage(OutageKind::Conflict)
    }

    /// Whether the database cannot be used for this reason.
    pub fn is_outage(&self, kind: OutageKind) -> bool {
        matches!(self, Error::Unavailable(outage) if outage.kind == kind)
    }

    /// What this error means where the statement that failed was the one that commits: if the
    /// connection was lost, the database may have committed all the same.
    #[must_use]
    pub fn of_commit(self) -> Self {
        match self {
            Error::Unavailable(Outage { kind: OutageKind::Lost, cause }) => Error::OutcomeUnknown(cause),
            other => other,
        }
    }

    /// What this error means where a part of what was asked for has been done before: a caller
    /// must not be told that nothing was.
    #[must_use]
    pub fn after_a_part(self) -> Self {
        match self {
            Error::Unavailable(outage) => Error::OutcomeUnknown(format!("a part was done, then: {outage}")),
            other => other,
        }
    }
}

/// That the database cannot be used, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{cause}")]
pub struct Outage {
    /// Why.
    pub kind: OutageKind,
    /// In its own words, for the log.
    pub cause: String,
}

/// Why the database cannot be used. Nobody's call is to blame, so that no batch is split.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutageKind {
    /// No connection could be made in time, or it is stopping, starting or recovering.
    Unreachable,
    /// It does not want us: wrong password, no such database.
    Refused,
    /// The connection was lost while a statement was under way.
    Lost,
    /// Somebody held a lock, or a statement took longer than it may.
    TooSlow,
    /// The caller's time was over before anything was committed.
    TimeUp,
    /// Two transactions stood in each other's way, again and again.
    Conflict,
    /// It takes no writes: a standby, or set so.
    ReadOnly,
    /// It has run out of disk space.
    DiskFull,
    /// It has run out of memory, or of room for locks: `max_locks_per_transaction`.
    OutOfMemory,
    /// It has as many connections as it takes.
    TooManyConnections,
    /// Its files are missing, or cannot be read or written.
    Broken,
    /// Its schema is not this version's.
    NotMigrated,
    /// It is we who stop.
    Stopping,
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
