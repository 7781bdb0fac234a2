//! Turns errors into responses: problem documents (RFC 9457).
//!
//! [`super::code`] has the table of codes; here is the one exhaustive `match` from [`Error`] to a code. The
//! cause of an internal error is logged here, once, and never sent.

use actix_web::http::{StatusCode, header};
use actix_web::{HttpResponse, ResponseError};
use serde_json::{Map, Value, json};

use super::code::{Code, CodeInfo};
use crate::domain::api_key::TagRefusal;
use crate::domain::event_type::rejection::{RecentEvents, RecentRejection, Rejection};
use crate::domain::invalid::Invalid;
use crate::domain::lease::Refusal;
use crate::error::{Error, OutageKind};
use crate::logging::limiter::Kind;

pub fn code_of(error: &Error) -> Code {
    match error {
        Error::MalformedJson(_) => Code::MalformedJson,
        Error::Invalid(_) | Error::EventsRejected(_) => Code::InvalidRequest,
        Error::CursorMismatch { .. } => Code::CursorMismatch,
        Error::TooLarge { .. } => Code::PayloadTooLarge,
        Error::UnsupportedMediaType => Code::UnsupportedMediaType,
        Error::ContentEncoding => Code::UnsupportedContentEncoding,
        Error::BodyTimeout(_) => Code::RequestTimeout,
        Error::Unauthenticated(_) => Code::Unauthenticated,
        Error::KeyExpired => Code::KeyExpired,
        Error::KeyRevoked => Code::KeyRevoked,
        Error::ScopeMissing(_) => Code::ScopeMissing,
        Error::TagNotAllowed(_) => Code::TagNotAllowed,
        Error::TooManyGuesses { .. } => Code::TooManyGuesses,
        Error::LimitExceeded(_) => Code::LimitExceeded,
        Error::KeyNotFound(_) => Code::KeyNotFound,
        Error::KeyNameTaken(_) => Code::KeyNameTaken,
        Error::KeyNotInUse(_) => Code::KeyNotInUse,
        Error::LastAdminKey(_) => Code::LastAdminKey,
        Error::TooManyKeys(_) => Code::TooManyKeys,
        Error::EventNotFound(_) => Code::EventNotFound,
        Error::SubscriptionNotFound(_) => Code::SubscriptionNotFound,
        Error::SourceNotFound(_) | Error::UnknownSourceToken => Code::SourceNotFound,
        Error::WebhookRefused(_) => Code::WebhookRefused,
        Error::EventTypeNotFound(_) => Code::EventTypeNotFound,
        Error::EventTypeVersionNotFound { .. } => Code::EventTypeVersionNotFound,
        Error::TooManyEventTypes(_) => Code::TooManyEventTypes,
        Error::SchemaRejectsRecentEvents(_) => Code::SchemaRejectsRecentEvents,
        Error::DeliveryNotFound(_) => Code::DeliveryNotFound,
        Error::DeadLetterNotFound(_) => Code::DeadLetterNotFound,
        Error::IdempotencyKeyReused { .. } => Code::IdempotencyKeyReused,
        Error::WebhookNotFound => Code::WebhookNotFound,
        Error::OperationNotFound(_) => Code::OperationNotFound,
        Error::NamespaceNotFound(_) => Code::NamespaceNotFound,
        Error::NamespaceExists(_) => Code::NamespaceExists,
        Error::TooManyNamespaces(_) => Code::TooManyNamespaces,
        Error::NotReplayable { .. } => Code::NotReplayable,
        Error::TooManySubscriptions(_) => Code::TooManySubscriptions,
        Error::TooManySources(_) => Code::TooManySources,
        Error::TooManySecrets(_) => Code::TooManySecrets,
        Error::TooManyOperations(_) => Code::TooManyOperations,
        Error::VersionMismatch { .. } | Error::RevisionMismatch { .. } => Code::PreconditionFailed,
        Error::Refused(Refusal::NotClaimed) => Code::NotClaimed,
        Error::Refused(Refusal::LeaseLost) => Code::LeaseLost,
        Error::Refused(Refusal::AlreadySettled) => Code::AlreadySettled,
        Error::Refused(Refusal::AlreadyFinished) => Code::AlreadyFinished,
        Error::WrongState { .. } => Code::WrongState,
        Error::Overloaded | Error::TooManyStreams { .. } | Error::NoMemory => Code::Overloaded,
        Error::Unavailable(_) => Code::DatabaseUnavailable,
        Error::OutcomeUnknown(_) => Code::OutcomeUnknown,
        Error::Internal(_) => Code::InternalError,
    }
}

/// The detail of [`Code::OutcomeUnknown`].
const OUTCOME_UNKNOWN_DETAIL: &str = "It was sent to the database, and may or may not have been carried out.";

/// Returns why the database cannot be used, as a text for clients.
fn outage_reason(kind: OutageKind) -> &'static str {
    match kind {
        OutageKind::Unreachable | OutageKind::Refused => "The database could not be reached in time.",
        OutageKind::Lost => "The connection to the database was lost.",
        OutageKind::TooSlow | OutageKind::TimeUp => "The database did not answer in time.",
        OutageKind::Conflict => "Other transactions stood in the way.",
        OutageKind::ReadOnly => "The database is read-only.",
        OutageKind::DiskFull => "The database has run out of disk space.",
        OutageKind::OutOfMemory => {
            "The database has run out of memory or of room for locks (see max_locks_per_transaction)."
        }
        OutageKind::TooManyConnections => "The database has no connection left.",
        OutageKind::Broken => "The database cannot read or write its files.",
        OutageKind::NotMigrated => "The schema of the database is not this version's.",
        OutageKind::Stopping => "The server is stopping.",
    }
}

/// A problem document.
pub struct Problem {
    code: Code,
    fields: Map<String, Value>,
    /// The value of `Retry-After`, if it differs from that of the code.
    retry_after: Option<u64>,
}

impl Problem {
    /// Creates a problem. `detail` describes this occurrence.
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        let CodeInfo { status, name, title, retryable, effect, .. } = code.info();
        let mut fields = Map::new();
        fields.insert("type".into(), format!("/problems/{name}").into());
        fields.insert("title".into(), title.into());
        fields.insert("status".into(), status.into());
        fields.insert("detail".into(), detail.into().into());
        fields.insert("code".into(), name.into());
        fields.insert("error".into(), title.into());
        fields.insert("retryable".into(), retryable.into());
        fields.insert("effect".into(), effect.as_str().into());
        Problem { code, fields, retry_after: None }
    }

    /// Returns the problem of a request that has the same effect if it is sent twice: it may be sent again
    /// even if its outcome is unknown.
    pub(crate) fn of_repeatable(error: &Error) -> Self {
        let problem = Problem::from(error);
        match error {
            Error::OutcomeUnknown(_) => problem.with("retryable", true),
            _ => problem,
        }
    }

    /// Adds a field.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.fields.insert(name.into(), value.into());
        self
    }

    /// Returns the fields, for responses that contain many outcomes.
    pub fn into_fields(self) -> Map<String, Value> {
        self.fields
    }

    /// Returns the problem as a response.
    pub fn respond(self) -> HttpResponse {
        let mut response = HttpResponse::build(self.code.status());
        response.content_type("application/problem+json");
        if matches!(self.code, Code::Overloaded | Code::DatabaseUnavailable | Code::OutcomeUnknown) {
            response.insert_header((header::RETRY_AFTER, "1"));
        }
        if let Some(seconds) = self.retry_after {
            response.insert_header((header::RETRY_AFTER, seconds));
        }
        if self.code.status() == StatusCode::UNAUTHORIZED {
            response.insert_header((header::WWW_AUTHENTICATE, "Bearer"));
        }
        if self.code == Code::UnsupportedContentEncoding {
            response.insert_header((header::ACCEPT_ENCODING, "identity"));
        }
        let mut response = response.body(Value::Object(self.fields).to_string());
        // For the metrics and the log.
        response.extensions_mut().insert(self.code);
        response
    }
}

impl From<&Error> for Problem {
    fn from(error: &Error) -> Self {
        let code = code_of(error);
        match error {
            Error::MalformedJson(cause) => {
                Problem::new(code, cause.as_str()).with("errors", json!([Invalid::new("body", cause.as_str())]))
            }
            Error::Invalid(errors) => invalid_problem(code, errors),
            Error::EventsRejected(rejections) => {
                let of_event = |Rejection { index, errors }: &Rejection| {
                    let event = format!("events[{index}]");
                    errors.iter().map(move |invalid| invalid.clone().inside(&event)).collect::<Vec<_>>()
                };
                invalid_problem(code, &rejections.iter().flat_map(of_event).collect::<Vec<_>>())
            }
            Error::SchemaRejectsRecentEvents(recent) => {
                Problem::new(code, error.to_string()).with("recent_events", recent_events_view(recent))
            }
            Error::CursorMismatch { field, reason } => {
                let detail = format!("{error}; begin again at the first page");
                Problem::new(code, detail).with("errors", json!([Invalid::new(*field, *reason)]))
            }
            Error::TooLarge { field, limit } => {
                let reason = format!("must be at most {limit} bytes");
                Problem::new(code, format!("{field} {reason}"))
                    .with("errors", json!([Invalid::new(field.as_str(), reason)]))
            }
            Error::WrongState { status, .. } => {
                Problem::new(code, error.to_string()).with("current_status", status.as_str())
            }
            Error::ScopeMissing(scope) => Problem::new(code, error.to_string()).with("scope", scope.as_str()),
            Error::TagNotAllowed(TagRefusal::Tag(tag)) => {
                Problem::new(code, error.to_string()).with("tag", tag.as_str())
            }
            Error::TooManyGuesses { retry_after } => {
                Problem { retry_after: Some(*retry_after), ..Problem::new(code, error.to_string()) }
            }
            Error::LimitExceeded(exceeded) => {
                let problem = Problem::new(code, error.to_string())
                    .with("limit", exceeded.limit.as_str())
                    .with("limit_of", exceeded.owner.as_str());
                Problem { retry_after: Some(exceeded.retry_after), ..problem }
            }
            Error::Unavailable(outage) => {
                Problem::new(code, format!("{} Nothing was changed; try again later.", outage_reason(outage.kind)))
            }
            Error::OutcomeUnknown(_) => Problem::new(code, OUTCOME_UNKNOWN_DETAIL),
            // The cause of an internal error is logged and not sent.
            Error::Internal(_) | Error::Refused(_) | Error::Overloaded | Error::UnsupportedMediaType => {
                Problem::new(code, code.info().meaning)
            }
            Error::Unauthenticated(_)
            | Error::KeyExpired
            | Error::KeyRevoked
            | Error::TagNotAllowed(TagRefusal::NoTag | TagRefusal::NoneOfEvent)
            | Error::KeyNotFound(_)
            | Error::KeyNameTaken(_)
            | Error::KeyNotInUse(_)
            | Error::LastAdminKey(_)
            | Error::TooManyKeys(_)
            | Error::IdempotencyKeyReused { .. }
            | Error::WebhookNotFound
            | Error::EventNotFound(_)
            | Error::SubscriptionNotFound(_)
            | Error::SourceNotFound(_)
            | Error::UnknownSourceToken
            | Error::WebhookRefused(_)
            | Error::EventTypeNotFound(_)
            | Error::EventTypeVersionNotFound { .. }
            | Error::TooManyEventTypes(_)
            | Error::DeliveryNotFound(_)
            | Error::DeadLetterNotFound(_)
            | Error::OperationNotFound(_)
            | Error::NamespaceNotFound(_)
            | Error::NamespaceExists(_)
            | Error::TooManyNamespaces(_)
            | Error::TooManyOperations(_)
            | Error::NotReplayable { .. }
            | Error::TooManySubscriptions(_)
            | Error::TooManySources(_)
            | Error::TooManySecrets(_)
            | Error::VersionMismatch { .. }
            | Error::RevisionMismatch { .. }
            | Error::TooManyStreams { .. }
            | Error::NoMemory
            | Error::ContentEncoding
            | Error::BodyTimeout(_) => Problem::new(code, error.to_string()),
        }
    }
}

fn invalid_problem(code: Code, errors: &[Invalid]) -> Problem {
    let reasons: Vec<String> = errors.iter().map(|e| format!("{} {}", e.field, e.reason)).collect();
    Problem::new(code, reasons.join("; ")).with("errors", json!(errors))
}

/// Returns what a schema does to the latest events of its type.
pub(crate) fn recent_events_view(recent: &RecentEvents) -> Value {
    let view = |rejection: &RecentRejection| json!({"event_id": rejection.event_id, "errors": rejection.errors});
    let rejections: Vec<Value> = recent.rejections.iter().map(view).collect();
    json!({"checked": recent.checked, "rejected": recent.rejected, "rejections": rejections})
}

impl ResponseError for Error {
    fn status_code(&self) -> StatusCode {
        code_of(self).status()
    }

    fn error_response(&self) -> HttpResponse {
        log_cause(self);
        Problem::from(self).respond()
    }
}

/// Logs the error of a request that has the same effect if it is sent twice, and returns its response.
pub(crate) fn respond_to_repeatable(error: Error) -> HttpResponse {
    log_cause(&error);
    Problem::of_repeatable(&error).respond()
}

/// Logs what the problem of an error does not tell the client.
pub(crate) fn log_cause(error: &Error) {
    match error {
        Error::Internal(cause) => log::error!("{cause}"),
        Error::Unavailable(_) | Error::OutcomeUnknown(_) if Kind::Outage.is_due() => log::warn!("{error}"),
        _ => {}
    }
}
