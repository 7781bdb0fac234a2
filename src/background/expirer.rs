//! Fails pending deliveries at their `expires_at`.

use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{Service, sweep_all};
use crate::engine::Engine;
use crate::error::Error;

const INTERVAL: Duration = Duration::from_secs(1);

/// Fails all expired deliveries. Returns their number.
pub async fn run_once(engine: &Engine) -> Result<usize, Error> {
    let expire = async || {
        let began = Instant::now();
        let swept = engine.expire_deliveries().await?;
        if swept.more {
            engine.yield_to_workers(began.elapsed()).await;
        }
        Ok(swept)
    };
    Ok(sweep_all(expire).await?.count)
}

/// Runs rounds until the server stops.
pub async fn run(engine: Engine, shutdown: CancellationToken) {
    let service = Service::every("expirer", INTERVAL);
    service.run(engine, shutdown, |engine| async move { run_once(&engine).await.map(|_| None) }).await;
}
