//! The sweeps (promoter, expirer, lease reaper) while other transactions hold the rows that they
//! change.

mod busy_keys;
mod leases;
mod locked;
mod neighbours;
mod unwatched;

use serde_json::{Value, json};

use crate::support::App;
use crate::support::locks::HeldRow;
use crate::support::work::{W1, ids};

/// A sweep that skips what others have locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Due,
    Expired,
    LostLeases,
}

const KINDS: [Kind; 3] = [Kind::Due, Kind::Expired, Kind::LostLeases];

/// Seconds until what is [prepared](Kind::prepare) is overdue.
const UNTIL_OVERDUE: i64 = 100;

impl Kind {
    /// Publishes events that this sweep has to change [`UNTIL_OVERDUE`] seconds from now. There
    /// must be only one event of each key.
    async fn prepare(self, app: &App, count: usize, event: impl Fn(usize) -> Value) -> Vec<i64> {
        let expires_at = json!(app.now() + chrono::TimeDelta::seconds(UNTIL_OVERDUE));
        let with_its_time = |number: usize| {
            let mut event = event(number);
            match self {
                Kind::Due => event["delay_seconds"] = json!(UNTIL_OVERDUE),
                Kind::Expired => event["expires_at"] = expires_at.clone(),
                Kind::LostLeases => {}
            }
            event
        };
        let events: Vec<Value> = (0..count).map(with_its_time).collect();
        let mut published = Vec::new();
        for chunk in events.chunks(500) {
            let stored = app.post("/events/batch", &json!({"events": chunk})).await.expect(201).json();
            published.extend(ids(stored["events"].as_array().expect("events")));
        }
        if self == Kind::LostLeases {
            let body = json!({"tags": ["a"], "worker_id": W1, "max": 1000, "lease_seconds": UNTIL_OVERDUE});
            assert_eq!(app.claim_by(&body).await.len(), count);
        }
        published
    }

    /// Runs the sweep once. Returns how many deliveries it changed.
    async fn run(self, app: &App) -> usize {
        match self {
            Kind::Due => app.promote().await,
            Kind::Expired => app.expire().await,
            Kind::LostLeases => app.reap().await,
        }
    }
}

fn job(_: usize) -> Value {
    json!({"title": "a job", "tags": "a"})
}

/// Locks the rows of deliveries.
async fn lock_rows(app: &App, ids: &[i64]) -> HeldRow {
    let sql = format!("SELECT 1 FROM waybill.deliveries WHERE id = ANY ('{{{}}}') FOR UPDATE", join(ids));
    HeldRow::with_uncommitted(app, &sql).await
}

/// Locks an ordering key.
async fn lock_key(app: &App, key: &str) -> HeldRow {
    HeldRow::with_uncommitted(app, &lock_key_sql(key)).await
}

fn lock_key_sql(key: &str) -> String {
    format!("SELECT pg_advisory_xact_lock(1463900482, {})", lock_number_sql(key))
}

/// Returns the lock number of an ordering key.
async fn key_lock(app: &App, key: &str) -> i64 {
    app.count(&format!("SELECT {}", lock_number_sql(key))).await
}

fn lock_number_sql(key: &str) -> String {
    format!("(hashtextextended('1:{key}', 0) & 1023)::integer")
}

fn join(ids: &[i64]) -> String {
    ids.iter().map(i64::to_string).collect::<Vec<_>>().join(",")
}
