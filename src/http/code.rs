//! The table of error codes: everything that a problem says about its code is written down here, once.
//!
//! `openapi.yaml` documents the same list, `/problems/{code}` shows it to people, and tests compare them.

use actix_web::http::StatusCode;

/// What a request that failed has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Nothing was changed, and nothing will be.
    None,
    /// What was reported is recorded.
    Recorded,
    /// It may have been carried out completely, partly or not at all.
    Unknown,
}

impl Effect {
    pub fn as_str(self) -> &'static str {
        match self {
            Effect::None => "none",
            Effect::Recorded => "recorded",
            Effect::Unknown => "unknown",
        }
    }
}

/// What is known about a code.
#[derive(Debug, Clone, Copy)]
pub struct CodeInfo {
    pub status: u16,
    /// The stable name, which is `code` in a problem.
    pub name: &'static str,
    /// The text for people, which is `title` and `error` in a problem.
    pub title: &'static str,
    /// Whether the same request may be sent again. Some requests decide this for themselves; see
    /// [`super::problem::Problem::of_repeatable`].
    pub retryable: bool,
    pub effect: Effect,
    /// When the code occurs.
    pub meaning: &'static str,
    /// What a client should do.
    pub advice: &'static str,
}

macro_rules! codes {
    ($($code:ident: $status:literal $name:literal $title:literal, $retryable:literal, $effect:ident,
       $meaning:literal, $advice:literal;)*) => {
        /// The code of a problem.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Code { $($code),* }

        impl Code {
            /// All codes, in the order of the documentation.
            pub const ALL: &[Code] = &[$(Code::$code),*];

            pub fn info(self) -> CodeInfo {
                match self {
                    $(Code::$code => CodeInfo {
                        status: $status,
                        name: $name,
                        title: $title,
                        retryable: $retryable,
                        effect: Effect::$effect,
                        meaning: $meaning,
                        advice: $advice,
                    }),*
                }
            }
        }
    };
}

codes! {
    MalformedJson: 400 "malformed_json" "Malformed JSON", false, None,
        "The body is not JSON, or is incomplete.",
        "Correct the body. `detail` names the line and column.";
    InvalidRequest: 400 "invalid_request" "Invalid request", false, None,
        "A field is missing, unknown or invalid; `errors` names each one.",
        "Correct the fields that `errors` lists. All mistakes are reported at once.";
    CursorMismatch: 400 "cursor_mismatch" "The cursor belongs to another list", false, None,
        "The cursor in `after` belongs to another list, to other filters or to another order, or to a state of the \
         database that a restore has undone.",
        "Start again with the first page, and send the same filters and order with every page.";
    MaxRetriesExceeded: 400 "max_retries_exceeded" "Max retries exceeded", false, Recorded,
        "The failure is recorded, and it was the last attempt: the event is FAILED.",
        "Nothing. An operator can retry the event.";
    NotRetryable: 400 "not_retryable" "Not retryable", false, Recorded,
        "The failure is recorded with `retryable: false`: the event is FAILED.",
        "Nothing. An operator can retry the event.";
    OriginNotAllowed: 403 "origin_not_allowed" "Not from a page of another origin", false, None,
        "A browser sent a write for a page of another origin.",
        "Send writes from a program, or from a page of this server.";
    RouteNotFound: 404 "route_not_found" "No such path", false, None,
        "The path does not exist.",
        "Compare the path with the documentation.";
    EventNotFound: 404 "event_not_found" "No such event", false, None,
        "There is no event with this id.",
        "Check the id. The log entries of a removed event are still found by `GET /logs?event_id=`.";
    SubscriptionNotFound: 404 "subscription_not_found" "No such subscription", false, None,
        "There is no subscription with this id.",
        "Check the id with `GET /subscriptions`.";
    DeliveryNotFound: 404 "delivery_not_found" "No such delivery", false, None,
        "There is no delivery with this id.",
        "Check the id with `GET /deliveries`.";
    DeadLetterNotFound: 404 "dead_letter_not_found" "No such dead letter", false, None,
        "There is no dead letter with this id.",
        "Check the id with `GET /dead-letters`.";
    OperationNotFound: 404 "operation_not_found" "No such operation", false, None,
        "There is no operation with this id.",
        "Check the id with `GET /operations`. Finished operations are removed after some time.";
    MethodNotAllowed: 405 "method_not_allowed" "Method not allowed", false, None,
        "The path exists, but not for this method; `Allow` lists its methods.",
        "Use one of the methods in `Allow`.";
    RequestTimeout: 408 "request_timeout" "The body took too long", true, None,
        "The body did not arrive within 30 seconds.",
        "Send the request again, over a connection that is fast enough.";
    NotClaimed: 409 "not_claimed" "Nobody has claimed it", false, None,
        "No worker has claimed the event.",
        "Claim the event before working on it.";
    LeaseLost: 409 "lease_lost" "The claim is no longer yours", false, None,
        "The claim does not, or no longer, belong to the caller: the event was taken back, another worker claimed it \
         since, or `worker_id` and `lease_id` do not belong to the same claim of this event.",
        "Stop working on the event. If this happens often, use a longer lease or send heartbeats.";
    AlreadySettled: 409 "already_settled" "The claim was settled in another way", false, None,
        "This claim was already settled, by another action or with other content.",
        "Nothing: the first settlement counts.";
    AlreadyFinished: 409 "already_finished" "It was finished, and not by this claim", false, None,
        "The event was finished, and not by this claim.",
        "Stop working on the event.";
    WrongState: 409 "wrong_state" "Its state does not allow that", false, None,
        "The event or delivery is in a state that does not allow this; `current_status` names the state.",
        "Read it again, and decide by its current state.";
    NotReplayable: 409 "not_replayable" "It cannot be replayed", false, None,
        "The dead letter was already replayed, its subscription was deleted, or its delivery is not finished.",
        "Read the dead letter; `detail` says which.";
    TooManySubscriptions: 409 "too_many_subscriptions" "There are too many subscriptions", false, None,
        "The server's limit of subscriptions is reached.",
        "Delete subscriptions that are not needed, or raise the limit.";
    TooManySecrets: 409 "too_many_secrets" "Too many secrets are in use", true, None,
        "Ten secrets of the subscription are already in use.",
        "Wait until the overlap of an earlier rotation has ended.";
    TooManyOperations: 409 "too_many_operations" "Too many operations are running", true, None,
        "The limit of running operations is reached.",
        "Wait until one has finished, or cancel one.";
    PreconditionFailed: 412 "precondition_failed" "It was changed in the meantime", false, None,
        "The version in `If-Match` is not the current one: somebody else changed it.",
        "Read it again, and repeat the change with the new `ETag`.";
    PayloadTooLarge: 413 "payload_too_large" "Too large", false, None,
        "The body, or a named field in it, is too large.",
        "Send less, or store large data elsewhere and send a reference.";
    UnsupportedMediaType: 415 "unsupported_media_type" "Not application/json", false, None,
        "The body is not declared as `application/json`.",
        "Send `Content-Type: application/json`.";
    UnsupportedContentEncoding: 415 "unsupported_content_encoding" "The body is compressed", false, None,
        "The body is compressed; send it uncompressed.",
        "Send the body without `Content-Encoding`.";
    HostNotAllowed: 421 "host_not_allowed" "Not a host of this server", false, None,
        "The host of the request is not allowed for this server.",
        "Use the server's address, or start it with this name in `--allowed-hosts`.";
    Overloaded: 429 "overloaded" "Too many requests are waiting", true, None,
        "Too many requests already wait, or this one waited too long; nothing was done. Retry after `Retry-After` \
         seconds.",
        "Wait at least `Retry-After` seconds, longer each time and with jitter, and send the request again.";
    InternalError: 500 "internal_error" "Internal error", false, Unknown,
        "A fault of the server; the cause is in its log.",
        "Give the `X-Request-ID` of the response to the operator, who finds the cause under it in the log.";
    DatabaseUnavailable: 503 "database_unavailable" "The database is unavailable", true, None,
        "The database did not respond in time, is read-only or out of space, or is not migrated, or the server is \
         stopping; nothing was changed. Retry after `Retry-After` seconds.",
        "Wait at least `Retry-After` seconds, longer each time and with jitter, and send the request again.";
    OutcomeUnknown: 503 "outcome_unknown" "The outcome is unknown", false, Unknown,
        "The request was sent to the database and may or may not have been carried out. `retryable` says whether it may \
         be repeated; otherwise check the state first.",
        "If `retryable` is true, send the same request again. Otherwise read the current state before you repeat it.";
}

impl Code {
    /// Returns the code with this name.
    pub fn parse(name: &str) -> Option<Code> {
        Code::ALL.iter().copied().find(|code| code.name() == name)
    }

    pub fn status(self) -> StatusCode {
        StatusCode::from_u16(self.info().status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    /// Returns the stable name, which is `code` in a problem.
    pub fn name(self) -> &'static str {
        self.info().name
    }

    pub fn title(self) -> &'static str {
        self.info().title
    }
}

#[cfg(test)]
mod tests {
    use super::Code;

    #[test]
    fn every_name_and_every_status_is_valid_and_no_name_occurs_twice() {
        for code in Code::ALL {
            assert_eq!(code.status().as_u16(), code.info().status);
            assert_eq!(Code::parse(code.name()), Some(*code));
        }
    }
}
