//! Retention in tests: rounds by hand, and how long things are kept.

use std::time::Duration;

use waybill::background::retention::{self, RemovedRows, RetentionSettings};
use waybill::domain::retention::Retention;

use super::App;

/// One day, in seconds.
pub(crate) const DAY: i64 = 24 * 60 * 60;

/// Returns the default settings: 30 days for events and dead letters, 90 for the log, a year for the audit log.
pub(crate) fn by_default() -> RetentionSettings {
    RetentionSettings {
        events: Retention::days(30),
        log: Retention::days(90),
        dead_letters: Retention::days(30),
        audit: Retention::days(365),
        archive_dir: None,
    }
}

/// Returns the number of seconds of the default retention of events.
pub(crate) fn of_events() -> f64 {
    Duration::from_secs(30 * DAY as u64).as_secs_f64()
}

impl App {
    /// Removes everything that is too old, by default. Returns the number of rows by table.
    pub(crate) async fn remove_old(&self) -> RemovedRows {
        retention::run_once(self.engine(), &by_default()).await.expect("a round")
    }

    /// Returns how many seconds removal from a table is behind, according to the metrics.
    pub(crate) async fn retention_lag(&self, table: &str) -> f64 {
        let metrics = self.get("/metrics").await.expect(200).text;
        let line = format!("waybill_retention_lag_seconds{{table=\"{table}\"}} ");
        let value = metrics.lines().find_map(|found| found.strip_prefix(&line)).unwrap_or_else(|| panic!("{metrics}"));
        value.parse().expect("a number")
    }

    /// Returns whether an event exists, according to the API.
    pub(crate) async fn has_event(&self, id: i64) -> bool {
        let reply = self.get(&format!("/events/{id}")).await;
        if reply.status != 200 {
            reply.problem(404, "event_not_found");
            return false;
        }
        true
    }

    /// Returns the number of deliveries, tags and events that have lost what they belong to.
    pub(crate) async fn orphans(&self) -> i64 {
        self.count(
            "SELECT (SELECT count(*) FROM waybill.deliveries d WHERE NOT EXISTS \
                        (SELECT 1 FROM waybill.events e WHERE e.id = d.event_id)) \
                  + (SELECT count(*) FROM waybill.event_tags t WHERE NOT EXISTS \
                        (SELECT 1 FROM waybill.events e WHERE e.id = t.event_id)) \
                  + (SELECT count(*) FROM waybill.events e WHERE NOT EXISTS \
                        (SELECT 1 FROM waybill.deliveries d WHERE d.id = e.id))",
        )
        .await
    }
}
