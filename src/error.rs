//! What can go wrong, in the words of the domain. `http/problem.rs` turns each into a status
//! and a code, exhaustively; nothing else does.

use diesel::result::{DatabaseErrorKind, Error as DieselError};

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
    EventNotFound(i64),
    /// No such subscription.
    #[error("there is no subscription {0}")]
    SubscriptionNotFound(i64),
    /// No such delivery.
    #[error("there is no delivery {0}")]
    DeliveryNotFound(i64),
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
    /// The database cannot be reached, or went away in the middle.
    #[error("the database is unavailable: {0}")]
    Unavailable(String),
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
        Error::Unavailable(cause)
    }

    /// The same, for another caller of the same batch.
    #[must_use]
    pub fn for_another(&self) -> Self {
        match self {
            Error::Unavailable(cause) => Error::Unavailable(cause.clone()),
            Error::Overloaded => Error::Overloaded,
            other => Error::Internal(other.to_string()),
        }
    }

    /// Whether the transaction was the victim of another one and may simply be run again.
    pub fn is_conflict(&self) -> bool {
        matches!(self, Error::Unavailable(cause) if cause == CONFLICT)
    }
}

const CONFLICT: &str = "two transactions stood in each other's way";

impl From<DieselError> for Error {
    /// SQLSTATEs do not come through Diesel, so what is not one of its kinds is told by its
    /// text: the texts of `ERRCODE`s 57P01 to 57P03, 57014, 55P03 and 40P01.
    fn from(error: DieselError) -> Self {
        const GONE: [&str; 9] = [
            "terminating connection",
            "connection closed",
            "closed connection",
            "shutting down",
            "starting up",
            "recovery mode",
            "statement timeout",
            "lock timeout",
            "error communicating with the server",
        ];
        match &error {
            DieselError::BrokenTransactionManager => Error::unavailable(error.to_string()),
            DieselError::DatabaseError(kind, information) => {
                let text = information.message();
                match kind {
                    DatabaseErrorKind::SerializationFailure => Error::unavailable(CONFLICT.into()),
                    _ if text.contains("deadlock detected") => Error::unavailable(CONFLICT.into()),
                    // A day of the log was attached while the row was on its way to the safety net.
                    _ if text.contains("violates partition constraint") => Error::unavailable(CONFLICT.into()),
                    DatabaseErrorKind::ClosedConnection | DatabaseErrorKind::UnableToSendCommand => {
                        Error::unavailable(text.to_owned())
                    }
                    _ if GONE.iter().any(|gone| text.contains(gone)) => Error::unavailable(text.to_owned()),
                    _ => Error::Internal(format!("{kind:?}: {text}")),
                }
            }
            _ => Error::Internal(error.to_string()),
        }
    }
}
