//! The sizes of things a client may send, in one place. They are part of the contract, so
//! they are constants and not settings.

/// Characters of an event's title.
pub const TITLE_CHARS: usize = 255;
/// Characters of a description.
pub const DESCRIPTION_CHARS: usize = 10_000;
/// Characters of an event type, ordering key, correlation id, request id or reason.
pub const NAME_CHARS: usize = 255;
/// Characters of a worker id, `{hostname}:{pid}`.
pub const WORKER_ID_CHARS: usize = 255;
/// Tags of one event, and tags of one subscribe call.
pub const TAGS: usize = 32;
/// Characters of one tag.
pub const TAG_CHARS: usize = 100;
/// Labels of one event.
pub const LABELS: usize = 32;
/// Characters of a label's name or value.
pub const LABEL_CHARS: usize = 255;
/// Bytes of a payload, as sent.
pub const PAYLOAD_BYTES: usize = 1024 * 1024;
/// How deep a payload, a result or a progress report may nest.
pub const JSON_DEPTH: usize = 128;
/// Bytes of a worker's result.
pub const RESULT_BYTES: usize = 64 * 1024;
/// Bytes of a progress report.
pub const PROGRESS_BYTES: usize = 16 * 1024;
/// Characters of an error message.
pub const ERROR_MESSAGE_CHARS: usize = 10_000;
/// Attempts of one event.
pub const MAX_RETRIES: std::ops::RangeInclusive<i32> = 1..=1000;
/// Attempts of an event that does not say.
pub const DEFAULT_MAX_RETRIES: i32 = 3;
/// Priorities, higher first.
pub const PRIORITY: std::ops::RangeInclusive<i16> = -100..=100;
/// The longest delay or backoff in seconds, 30 days.
pub const DELAY_SECONDS: i64 = 30 * 24 * 60 * 60;
/// The lease a worker may ask for, in seconds.
pub const LEASE_SECONDS: std::ops::RangeInclusive<i32> = 1..=43_200;
/// The lease of a claim or heartbeat that does not say, in seconds.
pub const DEFAULT_LEASE_SECONDS: i32 = 300;
/// The number of a claim.
pub const LEASE_ID: std::ops::RangeInclusive<i64> = 1..=9_007_199_254_740_991;
/// How long a claim may wait, in seconds.
pub const WAIT_SECONDS: std::ops::RangeInclusive<i32> = 0..=60;
/// Events of one batch: published, claimed or settled.
pub const BATCH: usize = 1000;
/// Steps of a backoff schedule.
pub const SCHEDULE_STEPS: usize = 100;
/// Rows of one page of a list.
pub const PAGE: std::ops::RangeInclusive<i64> = 1..=500;

// Subscriptions: what is pushed, where to and how.

/// Characters of a subscription's name.
pub const SUBSCRIPTION_NAME_CHARS: usize = 255;
/// Characters of the address that is called.
pub const URL_CHARS: usize = 2048;
/// Patterns of event types of one subscription.
pub const EVENT_PATTERNS: usize = 100;
/// Characters of a path into a payload.
pub const PATH_CHARS: usize = 255;
/// Segments of a path into a payload.
pub const PATH_SEGMENTS: usize = 16;
/// Bytes of a filter, written as JSON without whitespace.
pub const FILTER_BYTES: usize = 16 * 1024;
/// Conditions of one filter.
pub const FILTER_CONDITIONS: usize = 100;
/// How deep a filter may nest, and how deep a value within it.
pub const FILTER_DEPTH: usize = 8;
/// Values in one list of a filter.
pub const FILTER_VALUES: usize = 100;
/// Characters of one string in a filter.
pub const FILTER_STRING_CHARS: usize = 1_000;
/// Bytes that all filters together may look at for one request, shared equally by its events.
pub const MATCHING_REQUEST_BYTES: u64 = 16 * 1024 * 1024;
/// How often over they may look at each payload besides. One filter may use half of both.
pub const MATCHING_PAYLOAD_READS: u64 = 16;
/// Bytes that every filter may look at for an event, however many filters there are.
pub const FILTER_LEAST_WORK_BYTES: u64 = 4 * 1024;
/// Headers that a subscription adds.
pub const HEADERS: usize = 32;
/// Characters of a header's name.
pub const HEADER_NAME_CHARS: usize = 100;
/// Characters of a header's value.
pub const HEADER_VALUE_CHARS: usize = 2_000;
/// How long one call may take, in milliseconds.
pub const TIMEOUT_MS: std::ops::RangeInclusive<i32> = 100..=60_000;
/// How long a call of a subscription that does not say may take, in milliseconds.
pub const DEFAULT_TIMEOUT_MS: i32 = 10_000;
/// Calls for one event in all.
pub const MAX_ATTEMPTS: std::ops::RangeInclusive<i32> = 1..=100;
/// Calls for one event of a subscription that does not say.
pub const DEFAULT_MAX_ATTEMPTS: i32 = 4;
/// The waits between the calls of a subscription that does not say, in seconds.
pub const DEFAULT_RETRY_SECONDS: [i64; 3] = [5, 30, 300];
/// The shortest wait of a subscription whose jitter names no floor, in seconds; its base if that is less.
pub const RETRY_FLOOR_SECONDS: i64 = 1;
/// Items in the list of failures that are worth another call.
pub const RETRY_ON: usize = 100;
/// Calls under way at once.
pub const MAX_CONCURRENCY: std::ops::RangeInclusive<i32> = 1..=1000;
/// Calls under way at once of a subscription that does not say.
pub const DEFAULT_MAX_CONCURRENCY: i32 = 16;
/// Calls per second.
pub const RATE_PER_SECOND: std::ops::RangeInclusive<f64> = 0.01..=10_000.0;
/// The longest that a receiver's `Retry-After` may put us off, in seconds.
pub const RETRY_AFTER_SECONDS: f64 = 86_400.0;
/// Paths that a transform keeps, and paths that it drops.
pub const TRANSFORM_PATHS: usize = 100;
/// Bytes of a template.
pub const TEMPLATE_BYTES: usize = 16 * 1024;
/// Words and signs within one tag of a template.
pub const TEMPLATE_TAG_TOKENS: usize = 200;
/// Branches of all conditions in a template.
pub const TEMPLATE_BRANCHES: usize = 100;
/// Steps that a template may take over a small payload.
pub const TEMPLATE_STEPS: u64 = 100_000;
/// Steps that a template may take over the largest payload.
pub const TEMPLATE_LEAST_STEPS: u64 = 2_000;
/// Bytes that a template may look at: with every step it may look at the whole payload, so
/// the larger that is, the fewer the steps.
pub const TEMPLATE_WORK_BYTES: u64 = 100_000_000;
/// Bytes that the filters of a template may make on the way.
pub const TEMPLATE_SCRATCH_BYTES: usize = 8 * 1024 * 1024;
/// Bytes of a rendered template.
pub const RENDERED_BYTES: usize = 1024 * 1024;
/// Characters of the content type of a rendered template.
pub const CONTENT_TYPE_CHARS: usize = 255;
/// Bytes of the key behind a secret.
pub const SECRET_BYTES: std::ops::RangeInclusive<usize> = 24..=64;
/// Secrets of one subscription in use at once: the present one, and those that are being replaced.
pub const SECRETS: i64 = 10;
/// How long an old secret may be used along with the new one at most, in seconds: a week.
pub const SECRET_OVERLAP_SECONDS: i64 = 604_800;
/// The same for a rotation that does not say: a day.
pub const DEFAULT_SECRET_OVERLAP_SECONDS: i64 = 86_400;
/// Dead letters of a bulk replay sent again per second.
pub const REPLAYS_PER_SECOND: std::ops::RangeInclusive<f64> = 0.1..=1000.0;
/// The same for a replay that does not say.
pub const DEFAULT_REPLAYS_PER_SECOND: f64 = 10.0;
