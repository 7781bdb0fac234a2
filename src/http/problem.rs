//! Turns errors into responses: problem documents (RFC 9457).
//!
//! There is one table of codes, and one exhaustive `match` from [`Error`] to a code. The cause of an
//! internal error is logged here, once, and never sent.

use actix_web::http::{StatusCode, header};
use actix_web::{HttpResponse, ResponseError};
use serde_json::{Map, Value, json};

use crate::domain::invalid::Invalid;
use crate::domain::lease::Refusal;
use crate::error::{Error, OutageKind};

/// The codes of all problems. `openapi.yaml` documents the same list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    MalformedJson,
    InvalidRequest,
    MaxRetriesExceeded,
    NotRetryable,
    OriginNotAllowed,
    RouteNotFound,
    EventNotFound,
    SubscriptionNotFound,
    DeliveryNotFound,
    DeadLetterNotFound,
    OperationNotFound,
    MethodNotAllowed,
    RequestTimeout,
    NotClaimed,
    LeaseLost,
    AlreadySettled,
    AlreadyFinished,
    WrongState,
    NotReplayable,
    TooManySubscriptions,
    TooManySecrets,
    TooManyOperations,
    PayloadTooLarge,
    UnsupportedMediaType,
    UnsupportedContentEncoding,
    HostNotAllowed,
    Overloaded,
    InternalError,
    DatabaseUnavailable,
    OutcomeUnknown,
}

impl Code {
    pub const ALL: [Code; 30] = [
        Code::MalformedJson,
        Code::InvalidRequest,
        Code::MaxRetriesExceeded,
        Code::NotRetryable,
        Code::OriginNotAllowed,
        Code::RouteNotFound,
        Code::EventNotFound,
        Code::SubscriptionNotFound,
        Code::DeliveryNotFound,
        Code::DeadLetterNotFound,
        Code::OperationNotFound,
        Code::MethodNotAllowed,
        Code::RequestTimeout,
        Code::NotClaimed,
        Code::LeaseLost,
        Code::AlreadySettled,
        Code::AlreadyFinished,
        Code::WrongState,
        Code::NotReplayable,
        Code::TooManySubscriptions,
        Code::TooManySecrets,
        Code::TooManyOperations,
        Code::PayloadTooLarge,
        Code::UnsupportedMediaType,
        Code::UnsupportedContentEncoding,
        Code::HostNotAllowed,
        Code::Overloaded,
        Code::InternalError,
        Code::DatabaseUnavailable,
        Code::OutcomeUnknown,
    ];

    /// Returns the status, the stable name and the title for people.
    pub fn row(self) -> (StatusCode, &'static str, &'static str) {
        match self {
            Code::MalformedJson => (StatusCode::BAD_REQUEST, "malformed_json", "Malformed JSON"),
            Code::InvalidRequest => (StatusCode::BAD_REQUEST, "invalid_request", "Invalid request"),
            Code::MaxRetriesExceeded => (StatusCode::BAD_REQUEST, "max_retries_exceeded", "Max retries exceeded"),
            Code::NotRetryable => (StatusCode::BAD_REQUEST, "not_retryable", "Not retryable"),
            Code::OriginNotAllowed => {
                (StatusCode::FORBIDDEN, "origin_not_allowed", "Not from a page of another origin")
            }
            Code::RouteNotFound => (StatusCode::NOT_FOUND, "route_not_found", "No such path"),
            Code::EventNotFound => (StatusCode::NOT_FOUND, "event_not_found", "No such event"),
            Code::SubscriptionNotFound => (StatusCode::NOT_FOUND, "subscription_not_found", "No such subscription"),
            Code::DeliveryNotFound => (StatusCode::NOT_FOUND, "delivery_not_found", "No such delivery"),
            Code::DeadLetterNotFound => (StatusCode::NOT_FOUND, "dead_letter_not_found", "No such dead letter"),
            Code::OperationNotFound => (StatusCode::NOT_FOUND, "operation_not_found", "No such operation"),
            Code::MethodNotAllowed => (StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", "Method not allowed"),
            Code::RequestTimeout => (StatusCode::REQUEST_TIMEOUT, "request_timeout", "The body took too long"),
            Code::NotClaimed => (StatusCode::CONFLICT, "not_claimed", "Nobody has claimed it"),
            Code::LeaseLost => (StatusCode::CONFLICT, "lease_lost", "The claim is no longer yours"),
            Code::AlreadySettled => (StatusCode::CONFLICT, "already_settled", "The claim was settled in another way"),
            Code::AlreadyFinished => {
                (StatusCode::CONFLICT, "already_finished", "It was finished, and not by this claim")
            }
            Code::WrongState => (StatusCode::CONFLICT, "wrong_state", "Its state does not allow that"),
            Code::NotReplayable => (StatusCode::CONFLICT, "not_replayable", "It cannot be replayed"),
            Code::TooManySubscriptions => {
                (StatusCode::CONFLICT, "too_many_subscriptions", "There are too many subscriptions")
            }
            Code::TooManySecrets => (StatusCode::CONFLICT, "too_many_secrets", "Too many secrets are in use"),
            Code::TooManyOperations => (StatusCode::CONFLICT, "too_many_operations", "There are too many operations"),
            Code::PayloadTooLarge => (StatusCode::PAYLOAD_TOO_LARGE, "payload_too_large", "Too large"),
            Code::UnsupportedMediaType => {
                (StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", "Not application/json")
            }
            Code::UnsupportedContentEncoding => {
                (StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_content_encoding", "The body is compressed")
            }
            Code::HostNotAllowed => (StatusCode::MISDIRECTED_REQUEST, "host_not_allowed", "Not a host of this server"),
            Code::Overloaded => (StatusCode::TOO_MANY_REQUESTS, "overloaded", "Too many requests are waiting"),
            Code::InternalError => (StatusCode::INTERNAL_SERVER_ERROR, "internal_error", "Internal error"),
            Code::DatabaseUnavailable => {
                (StatusCode::SERVICE_UNAVAILABLE, "database_unavailable", "The database is unavailable")
            }
            Code::OutcomeUnknown => (StatusCode::SERVICE_UNAVAILABLE, "outcome_unknown", "The outcome is unknown"),
        }
    }

    pub fn status(self) -> StatusCode {
        self.row().0
    }

    /// Returns the stable name, which is `code` in a problem document.
    pub fn name(self) -> &'static str {
        self.row().1
    }

    pub fn title(self) -> &'static str {
        self.row().2
    }
}

pub fn code_of(error: &Error) -> Code {
    match error {
        Error::MalformedJson(_) => Code::MalformedJson,
        Error::Invalid(_) => Code::InvalidRequest,
        Error::TooLarge { .. } => Code::PayloadTooLarge,
        Error::UnsupportedMediaType => Code::UnsupportedMediaType,
        Error::ContentEncoding => Code::UnsupportedContentEncoding,
        Error::BodyTimeout(_) => Code::RequestTimeout,
        Error::EventNotFound(_) => Code::EventNotFound,
        Error::SubscriptionNotFound(_) => Code::SubscriptionNotFound,
        Error::DeliveryNotFound(_) => Code::DeliveryNotFound,
        Error::DeadLetterNotFound(_) => Code::DeadLetterNotFound,
        Error::OperationNotFound(_) => Code::OperationNotFound,
        Error::NotReplayable { .. } => Code::NotReplayable,
        Error::TooManySubscriptions(_) => Code::TooManySubscriptions,
        Error::TooManySecrets(_) => Code::TooManySecrets,
        Error::TooManyOperations(_) => Code::TooManyOperations,
        Error::Refused(Refusal::NotClaimed) => Code::NotClaimed,
        Error::Refused(Refusal::LeaseLost) => Code::LeaseLost,
        Error::Refused(Refusal::AlreadySettled) => Code::AlreadySettled,
        Error::Refused(Refusal::AlreadyFinished) => Code::AlreadyFinished,
        Error::WrongState { .. } => Code::WrongState,
        Error::Overloaded | Error::NoMemory => Code::Overloaded,
        Error::Unavailable(_) => Code::DatabaseUnavailable,
        Error::OutcomeUnknown(_) => Code::OutcomeUnknown,
        Error::Internal(_) => Code::InternalError,
    }
}

/// The detail of [`Code::OutcomeUnknown`]: what a client should do.
const OUTCOME_UNKNOWN_DETAIL: &str = "It was sent to the database, and may or may not have been carried out. \
     A settlement: settle it again, which is safe. A claim: ask again; what it may have taken comes back when \
     its lease ends. Anything else: look before you repeat it.";

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
}

impl Problem {
    /// Creates a problem. `detail` describes this occurrence.
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        let mut fields = Map::new();
        fields.insert("type".into(), format!("/problems/{}", code.name()).into());
        fields.insert("title".into(), code.title().into());
        fields.insert("status".into(), code.status().as_u16().into());
        fields.insert("detail".into(), detail.into().into());
        fields.insert("code".into(), code.name().into());
        fields.insert("error".into(), code.title().into());
        Problem { code, fields }
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
        if self.code == Code::UnsupportedContentEncoding {
            response.insert_header((header::ACCEPT_ENCODING, "identity"));
        }
        response.body(Value::Object(self.fields).to_string())
    }
}

impl From<&Error> for Problem {
    fn from(error: &Error) -> Self {
        let code = code_of(error);
        match error {
            Error::MalformedJson(cause) => {
                Problem::new(code, cause.as_str()).with("errors", json!([Invalid::new("body", cause.as_str())]))
            }
            Error::Invalid(errors) => {
                let reasons: Vec<String> = errors.iter().map(|e| format!("{} {}", e.field, e.reason)).collect();
                Problem::new(code, reasons.join("; ")).with("errors", json!(errors))
            }
            Error::TooLarge { field, limit } => {
                let reason = format!("must be at most {limit} bytes");
                Problem::new(code, format!("{field} {reason}"))
                    .with("errors", json!([Invalid::new(field.as_str(), reason)]))
            }
            Error::WrongState { what, status, .. } => {
                Problem::new(code, error.to_string()).with(&format!("{what}_status"), status.as_str())
            }
            Error::Unavailable(outage) => {
                Problem::new(code, format!("{} Nothing was changed; try again later.", outage_reason(outage.kind)))
            }
            Error::OutcomeUnknown(_) => Problem::new(code, OUTCOME_UNKNOWN_DETAIL),
            // The cause of an internal error is logged and not sent.
            Error::Internal(_) | Error::Refused(_) | Error::Overloaded | Error::UnsupportedMediaType => {
                Problem::new(code, code.title())
            }
            Error::EventNotFound(_)
            | Error::SubscriptionNotFound(_)
            | Error::DeliveryNotFound(_)
            | Error::DeadLetterNotFound(_)
            | Error::OperationNotFound(_)
            | Error::TooManyOperations(_)
            | Error::NotReplayable { .. }
            | Error::TooManySubscriptions(_)
            | Error::TooManySecrets(_)
            | Error::NoMemory
            | Error::ContentEncoding
            | Error::BodyTimeout(_) => Problem::new(code, error.to_string()),
        }
    }
}

impl ResponseError for Error {
    fn status_code(&self) -> StatusCode {
        code_of(self).status()
    }

    fn error_response(&self) -> HttpResponse {
        match self {
            Error::Internal(cause) => log::error!("{cause}"),
            Error::Unavailable(_) | Error::OutcomeUnknown(_) => log::warn!("{self}"),
            _ => {}
        }
        Problem::from(self).respond()
    }
}
