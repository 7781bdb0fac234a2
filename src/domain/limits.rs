//! The limits and defaults of client input, in one place. They are part of the API contract, so they
//! are constants and not settings.

/// The maximum length of an event's title in characters.
pub(crate) const TITLE_CHARS: usize = 255;
/// The maximum length of a description in characters.
pub(crate) const DESCRIPTION_CHARS: usize = 10_000;
/// The maximum length of an event type, name of a source, ordering key, correlation id, idempotency key of a
/// claim or reason in characters.
pub(crate) const NAME_CHARS: usize = 255;
/// The maximum length of a worker id, `{hostname}:{pid}`, in characters.
pub(crate) const WORKER_ID_CHARS: usize = 255;
/// The maximum number of tags of an event, a claim or a subscription.
pub(crate) const TAGS: usize = 32;
/// The maximum length of a tag in characters.
pub(crate) const TAG_CHARS: usize = 100;
/// The maximum number of labels of an event or a subscription.
pub(crate) const LABELS: usize = 32;
/// The maximum length of a label's name or value in characters.
pub(crate) const LABEL_CHARS: usize = 255;
/// The maximum size of a payload in bytes, as sent.
pub(crate) const PAYLOAD_BYTES: usize = 1024 * 1024;
/// The maximum nesting depth of a payload, a result or a progress report.
pub(crate) const JSON_DEPTH: usize = 128;
/// The maximum size of a worker's result in bytes.
pub(crate) const RESULT_BYTES: usize = 64 * 1024;
/// The maximum size of a progress report in bytes.
pub(crate) const PROGRESS_BYTES: usize = 16 * 1024;
/// The maximum length of an error message in characters.
pub(crate) const ERROR_MESSAGE_CHARS: usize = 10_000;
/// The allowed number of attempts of an event.
pub(crate) const MAX_RETRIES: std::ops::RangeInclusive<i32> = 1..=1000;
/// The default number of attempts of an event.
pub(crate) const DEFAULT_MAX_RETRIES: i32 = 3;
/// The allowed priorities. Higher priorities are claimed first.
pub(crate) const PRIORITY: std::ops::RangeInclusive<i16> = -100..=100;
/// The maximum delay or backoff in seconds: 30 days.
pub(crate) const DELAY_SECONDS: i64 = 30 * 24 * 60 * 60;
/// The allowed duration of a lease in seconds.
pub(crate) const LEASE_SECONDS: std::ops::RangeInclusive<i64> = 1..=43_200;
/// The default duration of a lease in seconds, for claims and heartbeats.
pub(crate) const DEFAULT_LEASE_SECONDS: i64 = 300;
/// The allowed ids, of leases too. The maximum, 2^53 - 1, is the largest integer that JavaScript represents exactly.
/// No sequence of the database goes further.
pub(crate) const ID: std::ops::RangeInclusive<i64> = 1..=9_007_199_254_740_991;
/// How long a claim may wait for an event, in seconds.
pub(crate) const WAIT_SECONDS: std::ops::RangeInclusive<i64> = 0..=60;
/// The maximum number of events in a batch: published, claimed or settled.
pub(crate) const BATCH: usize = 1000;
/// The maximum number of steps of a backoff schedule.
pub(crate) const SCHEDULE_STEPS: usize = 100;
/// The allowed number of rows of one page of a list.
pub(crate) const PAGE: std::ops::RangeInclusive<i64> = 1..=500;
/// The number up to which the matches of a list are counted.
pub(crate) const LIST_COUNT: i64 = 1_000;

// Limits of filters that search events.

/// The maximum length of the text that events are searched for in characters.
pub(crate) const SEARCH_TEXT_CHARS: usize = 200;
/// The maximum number of conditions on labels and payloads of one filter, with those that exclude.
pub(crate) const SEARCH_CONDITIONS: usize = 8;
/// The maximum length of a path into the payloads that are searched in characters.
pub(crate) const SEARCH_PATH_CHARS: usize = 200;
/// The maximum number of segments of a path into the payloads that are searched.
pub(crate) const SEARCH_PATH_SEGMENTS: usize = 8;
/// The number of payloads that one page of a list, or one step of an operation, reads in search of events.
pub(crate) const SEARCH_PAYLOADS: i64 = 2_000;
/// The size of the payloads over 4 KiB among them, in bytes. The first one is always read.
pub(crate) const SEARCH_PAYLOAD_BYTES: i64 = 4 * 1024 * 1024;

// Limits and defaults of subscriptions.

/// The maximum length of a subscription's name in characters.
pub(crate) const SUBSCRIPTION_NAME_CHARS: usize = 255;
/// The maximum length of a URL in characters.
pub(crate) const URL_CHARS: usize = 2048;
/// The maximum number of event type patterns of a subscription.
pub(crate) const EVENT_PATTERNS: usize = 100;
/// The maximum length of a path into a payload in characters.
pub(crate) const PATH_CHARS: usize = 255;
/// The maximum number of segments of a path into a payload.
pub(crate) const PATH_SEGMENTS: usize = 16;
/// The maximum size of a filter in bytes, as JSON without whitespace.
pub(crate) const FILTER_BYTES: usize = 16 * 1024;
/// The maximum number of conditions of a filter.
pub(crate) const FILTER_CONDITIONS: usize = 100;
/// The maximum nesting depth of a filter, and of a value in a filter.
pub(crate) const FILTER_DEPTH: usize = 8;
/// The maximum number of values in one list of a filter.
pub(crate) const FILTER_VALUES: usize = 100;
/// The maximum length of one string in a filter in characters.
pub(crate) const FILTER_STRING_CHARS: usize = 1_000;
/// The number of bytes that all filters together may read for one request, divided equally among its
/// events. [`MATCHING_PAYLOAD_READS`] is added to it.
pub(crate) const MATCHING_REQUEST_BYTES: u64 = 16 * 1024 * 1024;
/// The number of times that all filters together may read each payload, in addition to
/// [`MATCHING_REQUEST_BYTES`]. One filter may use half of the sum.
pub(crate) const MATCHING_PAYLOAD_READS: u64 = 16;
/// The number of bytes that every filter may read for an event, however many filters there are.
pub(crate) const FILTER_LEAST_WORK_BYTES: u64 = 4 * 1024;
/// The maximum number of headers that a subscription adds.
pub(crate) const HEADERS: usize = 32;
/// The maximum length of a header's name in characters.
pub(crate) const HEADER_NAME_CHARS: usize = 100;
/// The maximum length of a header's value in characters.
pub(crate) const HEADER_VALUE_CHARS: usize = 2_000;
/// The allowed timeouts of a webhook request in milliseconds.
pub(crate) const TIMEOUT_MS: std::ops::RangeInclusive<i32> = 100..=60_000;
/// The default timeout of a webhook request in milliseconds.
pub(crate) const DEFAULT_TIMEOUT_MS: i32 = 10_000;
/// The allowed number of webhook requests for one event.
pub(crate) const MAX_ATTEMPTS: std::ops::RangeInclusive<i32> = 1..=100;
/// The default number of webhook requests for one event.
pub(crate) const DEFAULT_MAX_ATTEMPTS: i32 = 4;
/// The default waits between webhook requests for one event, in seconds.
pub(crate) const DEFAULT_BACKOFF_SECONDS: [i64; 3] = [5, 30, 300];
/// The minimum wait of a subscription with jitter and no floor, in seconds. If its `base_seconds` is
/// less, that is the minimum.
pub(crate) const BACKOFF_FLOOR_SECONDS: i64 = 1;
/// The maximum number of items of `retry_on`.
pub(crate) const RETRY_ON: usize = 100;
/// The allowed number of concurrent webhook requests of a subscription.
pub(crate) const MAX_CONCURRENCY: std::ops::RangeInclusive<i32> = 1..=1000;
/// The default number of concurrent webhook requests of a subscription.
pub(crate) const DEFAULT_MAX_CONCURRENCY: i32 = 16;
/// The allowed number of webhook requests per second of a subscription.
pub(crate) const RATE_PER_SECOND: std::ops::RangeInclusive<f64> = 0.01..=10_000.0;
/// The maximum wait that a receiver's `Retry-After` can cause, in seconds.
pub(crate) const RETRY_AFTER_SECONDS: f64 = 86_400.0;
/// The maximum number of paths in `keep`, and in `drop`, of a transform.
pub(crate) const TRANSFORM_PATHS: usize = 100;
/// The maximum size of a template in bytes.
pub(crate) const TEMPLATE_BYTES: usize = 16 * 1024;
/// The maximum number of tokens in one tag of a template.
pub(crate) const TEMPLATE_TAG_TOKENS: usize = 200;
/// The maximum number of `elif` branches in a template.
pub(crate) const TEMPLATE_BRANCHES: usize = 100;
/// The number of steps that a template may take for a small payload.
pub(crate) const TEMPLATE_STEPS: u64 = 100_000;
/// The number of steps that a template may take for the largest payload.
pub(crate) const TEMPLATE_LEAST_STEPS: u64 = 2_000;
/// The number of bytes that a template may read. Every step may read the whole payload, so a larger
/// payload allows fewer steps.
pub(crate) const TEMPLATE_WORK_BYTES: u64 = 100_000_000;
/// The number of bytes of intermediate results that the filters of a template may produce.
pub(crate) const TEMPLATE_SCRATCH_BYTES: usize = 8 * 1024 * 1024;
/// The maximum size of a rendered template in bytes.
pub(crate) const RENDERED_BYTES: usize = 1024 * 1024;
/// The maximum length of the content type of a rendered template in characters.
pub(crate) const CONTENT_TYPE_CHARS: usize = 255;
/// The allowed size of the key of a secret in bytes.
pub(crate) const SECRET_BYTES: std::ops::RangeInclusive<usize> = 24..=64;
/// The maximum number of secrets of a subscription in use at once: the current one, and those that are
/// being replaced.
pub(crate) const SECRETS: i64 = 10;
/// The maximum time that an old secret stays in use beside the new one, in seconds: 7 days.
pub(crate) const SECRET_OVERLAP_SECONDS: i64 = 604_800;
/// The default time that an old secret stays in use beside the new one, in seconds: 1 day.
pub(crate) const DEFAULT_SECRET_OVERLAP_SECONDS: i64 = 86_400;
/// The maximum number of keys that a server has to encrypt and decrypt secrets at rest.
pub(crate) const SECRET_KEYS: usize = 16;

// Limits and defaults of sources.

/// The maximum number of labels of a source. An event has room for two more, which describe its body.
pub(crate) const SOURCE_LABELS: usize = 30;
/// The maximum length of a secret of a source in characters.
pub(crate) const SOURCE_SECRET_CHARS: usize = 1_000;
/// The maximum number of secrets of a source in use at once: the current one, and those that are being replaced.
pub(crate) const SOURCE_SECRETS: i64 = 10;
/// The maximum length of the text before a signature or a token in its header, in characters.
pub(crate) const SIGNATURE_PREFIX_CHARS: usize = 100;
/// The maximum length of a user name in characters.
pub(crate) const USERNAME_CHARS: usize = 255;
/// The maximum size of a header with a signature, a timestamp or credentials in bytes.
pub(crate) const SIGNATURE_HEADER_BYTES: usize = 4_096;
/// How far the timestamp of a webhook may be from the present, in seconds.
pub(crate) const TOLERANCE_SECONDS: std::ops::RangeInclusive<i64> = 1..=86_400;
/// How far the timestamp of a webhook may be from the present by default, in seconds.
pub(crate) const DEFAULT_TOLERANCE_SECONDS: i64 = 300;
/// The maximum length of the challenge of a handshake in characters.
pub(crate) const CHALLENGE_CHARS: usize = 1_000;
/// The allowed statuses of the response to a webhook.
pub(crate) const RESPOND_STATUS: std::ops::RangeInclusive<u16> = 200..=299;
/// The maximum length of the body of the response to a webhook in characters.
pub(crate) const RESPOND_BODY_CHARS: usize = 4_000;

// Limits and defaults of operations.

/// The allowed rate of an operation, in deliveries or dead letters per second.
pub(crate) const OPERATION_PER_SECOND: std::ops::RangeInclusive<f64> = 0.1..=10_000.0;
/// The default rate of an operation, in deliveries or dead letters per second.
pub(crate) const DEFAULT_OPERATION_PER_SECOND: f64 = 500.0;
/// The maximum number of operations of a namespace that run at once.
pub(crate) const RUNNING_OPERATIONS: i64 = 100;
/// The maximum number of `ids` in the filter of an operation.
pub(crate) const OPERATION_IDS: usize = 500;

// Limits and defaults of API keys.

/// The maximum number of keys of a namespace that are not revoked.
pub(crate) const API_KEYS: i64 = 1_000;
/// The maximum length of a key's name in characters.
pub(crate) const KEY_NAME_CHARS: usize = 100;
/// The maximum number of tag patterns of a key.
pub(crate) const TAG_PATTERNS: usize = 32;
/// The maximum number of secrets of a key in use at once: the current one, and those that are being replaced.
pub(crate) const KEY_SECRETS: i64 = 10;
/// The maximum time that an old secret of a key stays good beside the new one, in seconds: 7 days.
pub(crate) const KEY_OVERLAP_SECONDS: i64 = 604_800;
/// The default time that an old secret of a key stays good beside the new one, in seconds: 1 day.
pub(crate) const DEFAULT_KEY_OVERLAP_SECONDS: i64 = 86_400;
/// The maximum number of sessions of a key. With one more, the oldest ends.
pub(crate) const KEY_SESSIONS: i64 = 100;

// Limits of namespaces.

/// The maximum number of patterns of fields that a namespace redacts.
pub(crate) const REDACT_PATTERNS: usize = 50;

// Limits of event types.

/// The maximum size of the schema of an event type in bytes, as sent.
pub(crate) const SCHEMA_BYTES: usize = 64 * 1024;
/// The maximum nesting depth of a schema.
pub(crate) const SCHEMA_DEPTH: usize = 64;
/// The maximum number of mistakes in a schema that a response lists.
pub(crate) const SCHEMA_ERRORS: usize = 20;
/// The maximum number of schemas inside a schema that are applied to one value, with all references followed.
pub(crate) const SCHEMA_APPLIED: usize = 1_000;
/// The maximum number of schemas that are applied to the same value inside each other.
pub(crate) const SCHEMA_CHAIN: usize = 32;
/// The maximum number of schemas beside `unevaluatedProperties` and `unevaluatedItems`, with all references followed.
pub(crate) const SCHEMA_UNEVALUATED: usize = 5_000;
/// The maximum number of different patterns in a schema.
pub(crate) const SCHEMA_PATTERNS: usize = 100;
/// The maximum size of one pattern when compiled, in KiB.
pub(crate) const PATTERN_KIB: usize = 1024;
/// The maximum size of all patterns of a schema when compiled, in KiB.
pub(crate) const PATTERNS_KIB: usize = 4 * 1024;
/// The number of steps that the check of the payloads of one request may take. One step is added per byte of payload.
pub(crate) const SCHEMA_STEPS: u64 = 4_000_000;
/// The maximum number of mistakes in one payload that a response lists.
pub(crate) const PAYLOAD_ERRORS: usize = 10;
/// The number of versions of a schema that are kept.
pub(crate) const SCHEMA_VERSIONS: i64 = 20;
/// The maximum number of examples of an event type.
pub(crate) const TYPE_EXAMPLES: usize = 10;
/// The maximum size of all examples of an event type in bytes, as sent.
pub(crate) const TYPE_EXAMPLES_BYTES: usize = 64 * 1024;
/// The number of the latest events of a type that must satisfy a new schema.
pub(crate) const RECENT_EVENTS: i64 = 100;
/// The size of the payloads of the latest events that are read for it, in bytes. The latest event is always read.
pub(crate) const RECENT_EVENTS_BYTES: i64 = 8 * 1024 * 1024;
/// The number of recent events that a response about a new schema names.
pub(crate) const RECENT_EVENTS_SHOWN: usize = 10;
