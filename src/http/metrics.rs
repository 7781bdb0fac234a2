//! `/metrics`: metrics for Prometheus.
//!
//! Most of them are in memory. What must be read from the database is read by one scrape for all others in the next
//! seconds ([`GaugeCache`]), and a scrape does not wait for long: when the database does not answer, its gauges are absent
//! and `waybill_database_up` is 0.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use actix_web::http::header;
use actix_web::web::{self, Data};
use actix_web::{HttpMessage, HttpRequest, HttpResponse, rt};
use tokio::time::{Instant, timeout_at};

use super::doors::Admitted;
use super::probe_turns::{ProbeTurns, Turns};
use super::query::expect_no_query;
use crate::domain::api_key::KeyScope;
use crate::engine::{Engine, Queued};
use crate::error::Error;
use crate::metrics::database::{DatabaseFigures, QueueFigures, TagFigures};
use crate::metrics::lanes::Lane;
use crate::metrics::process::ProcessUsage;
use crate::metrics::text_format::TextFormat;
use crate::store::lists::gauges::{QueueCaps, QueueRow, read_gauges, read_queues};

/// The maximum number of queues that are searched for the oldest delivery.
const MAX_QUEUES: usize = 1_000;

/// The maximum number of tags that are searched for waiting events.
const MAX_TAGS: usize = 500;

/// The same for one namespace, so that it leaves room for others.
const TAGS_PER_NAMESPACE: usize = 100;

/// The number up to which the events of a tag are counted.
const WAITING_CAP: i64 = 1_000;

/// The number of workers up to which they are counted.
const WORKER_CAP: i64 = 2_000;

/// The time that a scrape waits for the database. Prometheus gives up after ten seconds.
const SCRAPE_PATIENCE: Duration = Duration::from_secs(2);

/// When the gauges of the database were read, or could not be.
pub(crate) struct GaugeCache {
    keep: Duration,
    tried_at: Mutex<Option<Instant>>,
}

impl GaugeCache {
    /// Returns a cache of gauges that are read again after `keep`.
    pub(crate) fn new(keep: Duration) -> Self {
        GaugeCache { keep, tried_at: Mutex::default() }
    }

    fn is_fresh(&self) -> bool {
        let tried_at = *self.tried_at.lock().unwrap_or_else(PoisonError::into_inner);
        tried_at.is_some_and(|at| at.elapsed() < self.keep)
    }

    fn note_try(&self) {
        *self.tried_at.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }
}

/// `GET /metrics`: returns the metrics, as OpenMetrics if the client asks for it and otherwise in the older format of
/// Prometheus. A caller that is no administrator gets the series of their own namespace, and nothing about the server.
pub(crate) async fn get_metrics(
    engine: Data<Engine>,
    turns: Data<ProbeTurns>,
    cache: Data<GaugeCache>,
    request: HttpRequest,
) -> Result<HttpResponse, Error> {
    expect_no_query(&request)?;
    // A task of its own: a scraper that hangs up must not keep the others from what is read.
    let reading = (engine.clone(), turns.clone(), cache.clone());
    let _ = rt::spawn(async move { refresh(&reading.0, &reading.1.gauges, &reading.2).await }).await;
    set_gauges(&engine);
    let format = format_for(&request);
    let is_server_wide = |admitted: &Admitted| admitted.principal().scopes.allow(KeyScope::Admin);
    let text = match request.extensions().get::<Admitted>().filter(|admitted| !is_server_wide(admitted)) {
        Some(admitted) => engine.metrics().text_of(admitted.principal().namespace.0),
        None => engine.metrics().text(),
    };
    let text = text.map_err(|error| Error::Internal(error.to_string()))?;
    Ok(HttpResponse::Ok()
        .content_type(format.content_type())
        .insert_header((header::VARY, header::ACCEPT.as_str()))
        .body(format.convert(text)))
}

/// Returns the format that a client asks for.
fn format_for(request: &HttpRequest) -> TextFormat {
    let mut accepted = request.headers().get_all(header::ACCEPT).filter_map(|value| value.to_str().ok());
    match accepted.any(|value| value.to_ascii_lowercase().contains("application/openmetrics-text")) {
        true => TextFormat::OpenMetrics,
        false => TextFormat::Prometheus,
    }
}

/// Reads the gauges that cost something, unless another scrape has just done that. Scrapes that come meanwhile wait for
/// it, and then use what there is.
async fn refresh(engine: &Engine, turns: &Turns, cache: &GaugeCache) {
    if cache.is_fresh() {
        return;
    }
    let deadline = Instant::now() + SCRAPE_PATIENCE;
    let Ok(_turn) = turns.take_by(deadline).await else { return };
    if cache.is_fresh() {
        return;
    }
    if let Ok(usage) = web::block(ProcessUsage::read).await {
        engine.metrics().process.set_usage(usage);
    }
    let figures = match timeout_at(deadline, read_figures(engine, deadline)).await {
        Ok(figures) => figures,
        Err(_) => Err(Error::unavailable("the database did not answer in time".into())),
    };
    if let Err(error) = &figures {
        log::warn!("the gauges could not be read: {error}");
    }
    engine.metrics().database.set(figures.ok());
    // Also after a failure: otherwise each scrape would wait for a database that is away.
    cache.note_try();
}

async fn read_figures(engine: &Engine, deadline: Instant) -> Result<DatabaseFigures, Error> {
    // A server that neither pushes nor publishes loads no subscriptions. They must have their series before anything is
    // counted.
    engine.refresh_subscribers().await?;
    let mut queues = engine.subscription_cache().queues();
    queues.truncate(MAX_QUEUES);
    let mut conn = engine.database().connection_by(deadline).await?;
    let gauges = read_gauges(&mut conn, engine.now(), &queues, engine.settings().list_scan_rows).await?;
    let caps = QueueCaps {
        tags_per_namespace: TAGS_PER_NAMESPACE as i64,
        queues: MAX_TAGS as i64,
        waiting: WAITING_CAP,
        workers: WORKER_CAP,
    };
    let rows = read_queues(&mut conn, engine.now(), caps).await?;
    Ok(DatabaseFigures {
        version: gauges.version,
        pushes_pending: gauges.pushes_pending,
        oldest_push_seconds: gauges.oldest_push_seconds.unwrap_or(0.0).max(0.0),
        breakers_open: gauges.breakers_open,
        dead_letters: gauges.dead_letters,
        queues: queue_figures(rows),
    })
}

fn queue_figures(rows: Vec<QueueRow>) -> QueueFigures {
    let mut tags_of: BTreeMap<i32, usize> = BTreeMap::new();
    for row in &rows {
        *tags_of.entry(row.namespace_id).or_default() += 1;
    }
    let is_complete = rows.len() <= MAX_TAGS && tags_of.values().all(|tags| *tags < TAGS_PER_NAMESPACE);
    let tags = rows.into_iter().map(|row| TagFigures {
        namespace_id: row.namespace_id,
        namespace: row.namespace,
        tag: row.tag,
        waiting: row.waiting,
        oldest_seconds: row.oldest_seconds,
        workers: row.workers,
    });
    QueueFigures { tags: tags.collect(), is_complete }
}

/// Sets the gauges that the server has in memory.
fn set_gauges(engine: &Engine) {
    let metrics = engine.metrics();
    let Queued { publish, claim, settle, settle_pushes, endpoint_notes } = engine.queued();
    for (lane, calls) in [
        (Lane::Publish, publish),
        (Lane::Claim, claim),
        (Lane::Settle, settle),
        (Lane::SettlePushes, settle_pushes),
        (Lane::EndpointNotes, endpoint_notes),
    ] {
        metrics.lanes.set_queued(lane, calls);
    }
    let pool = engine.database().pool_use();
    metrics.pool.set_connections(pool.in_use, pool.idle);
    metrics.pool.max.set(pool.max as i64);
    metrics.pool.waiting.set(pool.waiting as i64);
    metrics.long_poll_waiters.set(engine.hub().len() as i64);
    metrics.log_streams.set(engine.trail().streams() as i64);
}
