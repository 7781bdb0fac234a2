//! One look at the server.

use chrono::{DateTime, Utc};
use serde_json::Value;

use crate::cli::client::ApiClient;
use crate::cli::error::CliError;

/// The number of workers and of failing events that are asked for; a screen shows fewer.
const ITEMS: usize = 50;

/// What the server says at one time.
pub(super) struct Look {
    pub at: DateTime<Utc>,
    pub stats: Value,
    pub history: Value,
    pub workers: Value,
    pub failing: Value,
}

/// Asks the server for everything that the screen shows.
pub(super) async fn take(client: &ApiClient) -> Result<Look, CliError> {
    let workers = format!("/workers?limit={ITEMS}");
    let failing = format!("/events?status=FAILED&order=desc&limit={ITEMS}");
    let (stats, history, workers, failing) = tokio::try_join!(
        client.get("/stats"),
        client.get("/stats/history?metric=published,completed,failed&from=1h&step=1m"),
        client.get(&workers),
        client.get(&failing),
    )?;
    Ok(Look {
        at: Utc::now(),
        stats: stats.value,
        history: history.value,
        workers: workers.value,
        failing: failing.value,
    })
}
