//! Settings of retention.

use std::path::PathBuf;

use clap::Args;

use crate::background::retention::RetentionSettings;
use crate::domain::retention::Retention;

#[derive(Debug, Clone, Args)]
pub struct RetentionArgs {
    /// Time for which a finished event is kept, such as `30d`, `12h`, `15m` or `90s`, or `forever`.
    #[arg(long, env = "WAYBILL_RETENTION", default_value_t = Retention::days(30))]
    pub retention: Retention,

    /// Time for which the event log is kept, at least as long as events.
    #[arg(long, env = "WAYBILL_LOG_RETENTION", default_value_t = Retention::days(90))]
    pub log_retention: Retention,

    /// Time for which the idempotency key of a published event is kept, also if the event is removed sooner.
    #[arg(long, env = "WAYBILL_IDEMPOTENCY_RETENTION", default_value_t = Retention::days(1))]
    pub idempotency_retention: Retention,

    /// Time for which a dead letter is kept.
    #[arg(long, env = "WAYBILL_DEAD_LETTER_RETENTION", default_value_t = Retention::days(30))]
    pub dead_letter_retention: Retention,

    /// Time for which an entry of the audit log is kept.
    #[arg(long, env = "WAYBILL_AUDIT_RETENTION", default_value_t = Retention::days(365))]
    pub audit_retention: Retention,

    /// Folder for the old weeks of the event log, as compressed NDJSON [default: none, they are dropped].
    #[arg(long, env = "WAYBILL_ARCHIVE_DIR")]
    pub archive_dir: Option<PathBuf>,
}

impl RetentionArgs {
    pub fn settings(&self) -> RetentionSettings {
        RetentionSettings {
            events: self.retention,
            log: self.log_retention,
            dead_letters: self.dead_letter_retention,
            audit: self.audit_retention,
            archive_dir: self.archive_dir.clone(),
        }
    }
}
