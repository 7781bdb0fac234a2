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
/// The longest delay or backoff, 30 days.
pub const DELAY_SECONDS: i64 = 30 * 24 * 60 * 60;
/// The lease a worker may ask for, in seconds.
pub const LEASE_SECONDS: std::ops::RangeInclusive<i32> = 1..=43_200;
/// The lease of a claim or heartbeat that does not say, in seconds.
pub const DEFAULT_LEASE_SECONDS: i32 = 300;
/// How long a claim may wait, in seconds.
pub const WAIT_SECONDS: std::ops::RangeInclusive<i32> = 0..=60;
/// Events of one batch: published, claimed or settled.
pub const BATCH: usize = 1000;
/// Steps of a backoff schedule.
pub const SCHEDULE_STEPS: usize = 100;
/// Rows of one page of a list.
pub const PAGE: std::ops::RangeInclusive<i64> = 1..=500;
