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
        "The cursor in `after` or `Last-Event-ID` belongs to another list, namespace, filter or order, or to a \
         state of the database that a restore has undone.",
        "Start again with the first page, and send the same filters and order with every page.";
    MaxRetriesExceeded: 400 "max_retries_exceeded" "Max retries exceeded", false, Recorded,
        "The failure is recorded, and it was the last attempt: the event is FAILED.",
        "Nothing. An operator can retry the event.";
    NotRetryable: 400 "not_retryable" "Not retryable", false, Recorded,
        "The failure is recorded with `retryable: false`: the event is FAILED.",
        "Nothing. An operator can retry the event.";
    Unauthenticated: 401 "unauthenticated" "No valid API key", false, None,
        "The request carries no API key, or one that does not exist.",
        "Send `Authorization: Bearer wb_…` with a key that an administrator has made. A typo in a key is reported here, \
         too.";
    KeyExpired: 401 "key_expired" "The API key has expired", false, None,
        "The key has expired, or it was rotated and the overlap of this secret has ended.",
        "Use the new secret, or ask an administrator for another key.";
    KeyRevoked: 401 "key_revoked" "The API key was revoked", false, None,
        "The key was revoked. A request that waits under it ends with this problem, too.",
        "Ask an administrator for another key.";
    WebhookRefused: 401 "webhook_refused" "The webhook could not be verified", false, None,
        "The signature, the token or the password of a webhook is missing, wrong or too old; nothing was stored.",
        "Compare the secret of the source with that of the sender. `detail` says what is missing or wrong.";
    ScopeMissing: 403 "scope_missing" "The API key does not allow that", false, None,
        "The key does not have the scope that this needs; `scope` names it.",
        "Use a key with that scope.";
    TagNotAllowed: 403 "tag_not_allowed" "The API key does not allow that tag", false, None,
        "The key is limited to some tags, and the event or the request is about another; `tag` names it.",
        "Use the tags that the key allows, or another key.";
    OriginNotAllowed: 403 "origin_not_allowed" "Not from a page of another origin", false, None,
        "A browser sent a write for a page of another origin.",
        "Send writes from a program, or from a page of this server.";
    RouteNotFound: 404 "route_not_found" "No such path", false, None,
        "The path does not exist.",
        "Compare the path with the documentation.";
    EventNotFound: 404 "event_not_found" "No such event", false, None,
        "There is no event with this id.",
        "Check the id. The log entries of a removed event are still found by `GET /logs?event_id=`.";
    WebhookNotFound: 404 "webhook_not_found" "No such webhook", false, None,
        "No webhook was received with this idempotency key, or its event has been removed.",
        "Check the key. Send the webhook, if it was never received.";
    SubscriptionNotFound: 404 "subscription_not_found" "No such subscription", false, None,
        "There is no subscription with this id.",
        "Check the id with `GET /subscriptions`.";
    SourceNotFound: 404 "source_not_found" "No such source", false, None,
        "There is no source with this id, or no active one with this URL.",
        "Check the id, or the URL, with `GET /sources`.";
    EventTypeNotFound: 404 "event_type_not_found" "No such event type", false, None,
        "No event type of this name is declared.",
        "Check the name with `GET /event-types`, which also lists types that are not declared.";
    EventTypeVersionNotFound: 404 "event_type_version_not_found" "No such version of the schema", false, None,
        "The schema of the event type has no such version, or it is no longer kept.",
        "Use one of the `versions` of the event type.";
    DeliveryNotFound: 404 "delivery_not_found" "No such delivery", false, None,
        "There is no delivery with this id.",
        "Check the id with `GET /deliveries`.";
    DeadLetterNotFound: 404 "dead_letter_not_found" "No such dead letter", false, None,
        "There is no dead letter with this id.",
        "Check the id with `GET /dead-letters`.";
    OperationNotFound: 404 "operation_not_found" "No such operation", false, None,
        "There is no operation with this id.",
        "Check the id with `GET /operations`. Finished operations are removed after some time.";
    KeyNotFound: 404 "key_not_found" "No such API key", false, None,
        "There is no key with this id.",
        "Check the id with `GET /keys`. Keys that were revoked are removed after some time.";
    NamespaceNotFound: 404 "namespace_not_found" "No such namespace", false, None,
        "There is no namespace with this name or id.",
        "Check the name with `GET /namespaces`. It may have been created on another server within the last second.";
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
    TooManySources: 409 "too_many_sources" "There are too many sources", false, None,
        "The server's limit of sources is reached.",
        "Delete sources that are not needed, or raise the limit.";
    TooManyEventTypes: 409 "too_many_event_types" "There are too many event types", false, None,
        "The server's limit of event types is reached.",
        "Delete event types that are not needed, or raise the limit.";
    SchemaRejectsRecentEvents: 409 "schema_rejects_recent_events" "The schema rejects recent events", false, None,
        "The new schema rejects some of the latest events of its type; `recent_events` says which and why.",
        "Correct the schema. To store it nevertheless, send the request with `?force=true`.";
    NamespaceExists: 409 "namespace_exists" "There is such a namespace already", false, None,
        "There is a namespace with this name already.",
        "Use it, or choose another name.";
    TooManyNamespaces: 409 "too_many_namespaces" "There are too many namespaces", false, None,
        "The server's limit of namespaces is reached.",
        "Use a namespace that exists, or raise the limit.";
    TooManySecrets: 409 "too_many_secrets" "Too many secrets are in use", true, None,
        "Ten secrets of the subscription, of the source or of the key are already in use.",
        "Wait until the overlap of an earlier rotation has ended.";
    TooManyOperations: 409 "too_many_operations" "Too many operations are running", true, None,
        "The limit of running operations is reached.",
        "Wait until one has finished, or cancel one.";
    KeyNameTaken: 409 "key_name_taken" "Another API key has that name", false, None,
        "A key of this name is in use. The name is the actor in logs, so it must tell keys apart.",
        "Choose another name, or revoke the other key first.";
    KeyNotInUse: 409 "key_not_in_use" "The API key is not in use", false, None,
        "The key was revoked or has expired, so it cannot be changed or rotated.",
        "Make another key.";
    LastAdminKey: 409 "last_admin_key" "It is the last administrator's key", false, None,
        "Without this key nobody could make or revoke keys any more.",
        "Make another key with the scope `admin` first.";
    TooManyKeys: 409 "too_many_keys" "There are too many API keys", false, None,
        "The limit of keys that are not revoked is reached.",
        "Revoke keys that are not needed.";
    PreconditionFailed: 412 "precondition_failed" "It was changed in the meantime", false, None,
        "The version in `If-Match` is not the current one: somebody else changed it.",
        "Read it again, and repeat the change with the new `ETag`.";
    PayloadTooLarge: 413 "payload_too_large" "Too large", false, None,
        "The body, or a named field in it, is too large.",
        "Send less, or store large data elsewhere and send a reference.";
    UnsupportedMediaType: 415 "unsupported_media_type" "Unsupported content type", false, None,
        "The body is not declared as `application/json`, or, at `POST /events`, as CloudEvents.",
        "Send `Content-Type: application/json`.";
    UnsupportedContentEncoding: 415 "unsupported_content_encoding" "The body is compressed", false, None,
        "The body is compressed; send it uncompressed.",
        "Send the body without `Content-Encoding`.";
    HostNotAllowed: 421 "host_not_allowed" "Not a host of this server", false, None,
        "The host of the request is not allowed for this server.",
        "Use the server's address, or start it with this name in `--allowed-hosts`.";
    IdempotencyKeyReused: 422 "idempotency_key_reused" "The idempotency key was used before", false, None,
        "An event was published under this key before, with another content.",
        "Use a new key for each event, and the same one only to send the same event again.";
    Overloaded: 429 "overloaded" "Too many requests are waiting", true, None,
        "Too many requests already wait, or this one waited too long; nothing was done. Retry after `Retry-After` \
         seconds.",
        "Wait at least `Retry-After` seconds, longer each time and with jitter, and send the request again.";
    TooManyGuesses: 429 "too_many_guesses" "Too many unknown API keys, URLs of sources, or logins", true, None,
        "Too many keys, or URLs of sources, that do not exist came from this address. Those that the server has in memory \
         still work.",
        "Correct the key or the URL, and wait for `Retry-After` seconds.";
    LimitExceeded: 429 "limit_exceeded" "A limit is reached", true, None,
        "A limit that an administrator has set for the namespace or the key is reached. `limit` names it, and `limit_of` \
         says whose it is.",
        "Wait for `Retry-After` seconds, and send the request again. `GET /usage` shows where the limits stand.";
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
