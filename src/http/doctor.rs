//! `/doctor`: what is wrong with this server and its database, and what to do about it.
//!
//! It is about the whole server and all namespaces, and names roles, endpoints and keys, so it is for administrators.
//! Every examination is bounded: its statement ends after [`EXAMINATION_LIMIT`], and all of them together after
//! [`DIAGNOSIS_LIMIT`]. One that fails, or that the role of the server may not make, is unknown, and the others go on.
//! One request at a time is served, so that questions about an ill database do not make it worse.

use std::time::Duration;

use actix_web::web::Data;
use actix_web::{HttpRequest, HttpResponse};
use chrono::Utc;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::{Instant, timeout};

use super::operate::STALE_SECONDS;
use super::probe_turns::ProbeTurns;
use super::query::expect_no_query;
use super::server_facts::ServerFacts;
use super::view::Timestamp;
use crate::domain::doctor::server::{self, ClockFacts, KEYS_END_WITHIN, SecretFacts};
use crate::domain::doctor::settings::{self, SETTING_CHECKS};
use crate::domain::doctor::storage::{self, LockFacts, SchemaFacts};
use crate::domain::doctor::work::{self, LEASE_CHECKS, LEASE_OVERDUE, OPERATION_OVERDUE};
use crate::domain::doctor::{Check, CheckStatus, gravest, transactions};
use crate::engine::Engine;
use crate::error::Error;
use crate::store::connection::database::PooledConnection;
use crate::store::connection::migrate::{compare_schema, is_migrated};
use crate::store::connection::transactions::{begin, roll_back};
use crate::store::lists::examinations::{COUNT_CAP, Examination, examine};
use crate::store::tables::log_partitions::read_lock_budget_pooled;
use crate::store::tables::stored_secrets::count_secret_keys;

/// The time that the statement of one examination may take.
const EXAMINATION_LIMIT: Duration = Duration::from_secs(1);

/// The time for all examinations together. What is not examined by then is unknown.
const DIAGNOSIS_LIMIT: Duration = Duration::from_secs(4);

/// The time that it waits for a connection.
const CONNECT_WITHIN: Duration = Duration::from_secs(2);

/// The time that the response of a statement may take beyond its limit.
const GRACE: Duration = Duration::from_millis(250);

#[derive(Serialize)]
struct Diagnosis {
    /// That of the gravest check.
    status: CheckStatus,
    at: Timestamp,
    version: &'static str,
    host: String,
    checks: Vec<Check>,
}

/// `GET /doctor`: returns all checks.
pub(crate) async fn get_diagnosis(
    engine: Data<Engine>,
    turns: Data<ProbeTurns>,
    facts: Data<ServerFacts>,
    request: HttpRequest,
) -> Result<HttpResponse, Error> {
    expect_no_query(&request)?;
    let deadline = Instant::now() + DIAGNOSIS_LIMIT;
    let _turn = turns.doctor.take_by(deadline).await?;
    let mut checks = Vec::new();
    let pool = engine.database().pool_use();
    // A worker that has just called must not look as if it had not. If this fails, the examinations fail, too.
    let _ = timeout(CONNECT_WITHIN, engine.record_sightings()).await;
    let mut doctor = Doctor::visit(&engine, deadline).await;
    doctor.examine_database(&mut checks).await;
    doctor.examine_work(&mut checks, facts.auto_reset).await;
    doctor.examine_server(&mut checks).await;
    checks.push(server::check_pool(&pool));
    checks.push(server::check_writes(engine.database().recent_outage().map(|outage| outage.to_string()).as_deref()));
    checks.push(server::check_unwatched_leases(engine.metrics().unwatched_leases.get()));
    checks.push(server::check_retention(&engine.metrics().retention_lags()));
    let diagnosis = Diagnosis {
        status: gravest(&checks),
        at: Timestamp(engine.time()),
        version: facts.version,
        host: facts.host.clone(),
        checks,
    };
    Ok(HttpResponse::Ok().json(diagnosis))
}

/// Who asks the database.
struct Doctor<'a> {
    engine: &'a Engine,
    deadline: Instant,
    /// The connection, or why there is none.
    conn: Result<PooledConnection, String>,
}

impl<'a> Doctor<'a> {
    async fn visit(engine: &'a Engine, deadline: Instant) -> Self {
        let conn = engine.database().connection_by(deadline.min(Instant::now() + CONNECT_WITHIN)).await;
        Doctor { engine, deadline, conn: conn.map_err(|error| error.to_string()) }
    }

    async fn examine_database(&mut self, checks: &mut Vec<Check>) {
        let unreachable = self.conn.as_ref().err().map(|reason| server::check_reachable(reason));
        let settings = self.ask(SETTING_CHECKS, Examination::Settings, |facts| settings::check_settings(&facts)).await;
        checks.extend(settings.into_iter().map(|check| match &unreachable {
            Some(problem) if problem.name == check.name => problem.clone(),
            _ => check,
        }));
        let one = |check: Check| vec![check];
        checks.extend(self.ask(&["size"], Examination::Size, |facts| one(settings::check_size(&facts))).await);
        let pool = self.engine.database().max_connections();
        let connections = |facts| one(server::check_connections(&facts, pool));
        checks.extend(self.ask(&["connections"], Examination::Connections, connections).await);
        checks.extend(self.examine_locks(pool).await);
        checks.extend(self.examine_schema().await);
        let partitions = |facts| one(storage::check_partitions(&facts));
        checks.extend(self.ask(&["partitions"], Examination::Partitions, partitions).await);
        checks.extend(self.ask(&["indexes"], Examination::Indexes, |facts| one(storage::check_indexes(&facts))).await);
        checks
            .extend(self.ask(&["dead_rows"], Examination::Tables, |facts| one(storage::check_dead_rows(&facts))).await);
        let open = |facts| one(transactions::check_transactions(&facts));
        checks.extend(self.ask(&["transactions"], Examination::Transactions, open).await);
        let prepared = |facts| one(transactions::check_prepared(&facts));
        checks.extend(self.ask(&["prepared_transactions"], Examination::PreparedTransactions, prepared).await);
        let slots = |facts| one(transactions::check_slots(&facts));
        checks.extend(self.ask(&["replication_slots"], Examination::ReplicationSlots, slots).await);
        let wraparound = |facts| one(transactions::check_wraparound(&facts));
        checks.extend(self.ask(&["wraparound"], Examination::Wraparound, wraparound).await);
    }

    async fn examine_work(&mut self, checks: &mut Vec<Check>, auto_reset: bool) {
        let one = |check: Check| vec![check];
        let unserved = |facts| one(work::check_unserved_tags(&facts));
        checks.extend(self.ask(&["unserved_tags"], Examination::UnservedTags, unserved).await);
        let leases = Examination::Leases { overdue: LEASE_OVERDUE, stale: STALE_SECONDS };
        checks.extend(self.ask(LEASE_CHECKS, leases, |facts| work::check_leases(&facts, auto_reset)).await);
        let dead_letters = |facts| one(work::check_dead_letters(&facts, COUNT_CAP));
        checks.extend(self.ask(&["dead_letters"], Examination::DeadLetters, dead_letters).await);
        checks.extend(self.ask(&["breakers"], Examination::Breakers, |facts| one(work::check_breakers(facts))).await);
        let operations = Examination::Operations { overdue: OPERATION_OVERDUE };
        checks.extend(self.ask(&["operations"], operations, |facts| one(work::check_operations(&facts))).await);
    }

    async fn examine_server(&mut self, checks: &mut Vec<Check>) {
        checks.extend(self.examine_clock().await);
        let keys = Examination::Keys { within: KEYS_END_WITHIN };
        checks.extend(self.ask(&["keys"], keys, |facts| vec![server::check_keys(&facts)]).await);
        checks.extend(self.examine_secrets().await);
    }

    async fn examine_clock(&mut self) -> Vec<Check> {
        let seconds = || Utc::now().timestamp_micros() as f64 / 1e6;
        let before = seconds();
        let judge = |facts: ClockFacts| vec![server::check_clock(facts.skew(before, seconds()))];
        self.ask(&["clock"], Examination::Clock, judge).await
    }

    async fn examine_locks(&mut self, reads: usize) -> Vec<Check> {
        let budget = self.within_limits(&["locks"], async |conn| Ok(read_lock_budget_pooled(conn).await?)).await;
        budget.map_or_else(
            |unknown| unknown,
            |budget| {
                vec![storage::check_locks(&LockFacts {
                    partitions: budget.partitions,
                    locks_per_read: budget.locks_per_read,
                    capacity: budget.capacity,
                    reads,
                    needed: budget.needed_for(reads),
                })]
            },
        )
    }

    async fn examine_schema(&mut self) -> Vec<Check> {
        let schema = self.within_limits(&["schema"], async |conn| match is_migrated(conn).await? {
            true => compare_schema(conn).await,
            false => Ok(SchemaFacts { pending: vec!["all".into()], unknown: Vec::new() }),
        });
        let schema = schema.await;
        schema.map_or_else(|unknown| unknown, |facts| vec![storage::check_schema(&facts)])
    }

    async fn examine_secrets(&mut self) -> Vec<Check> {
        let found = self.within_limits(&["secrets"], async |conn| Ok(count_secret_keys(conn).await?)).await;
        let found = match found {
            Ok(found) => found,
            Err(unknown) => return unknown,
        };
        let keys = &self.engine.settings().secret_keys;
        let mut facts = SecretFacts { held: self.engine.metrics().subscriptions_held.get(), ..SecretFacts::default() };
        for count in found {
            match count.key_id {
                None if keys.first_id().is_some() => facts.plain += count.values,
                Some(id) if !keys.has(&id) => facts.missing.push((id, count.values)),
                _ => {}
            }
        }
        vec![server::check_secrets(&facts)]
    }

    /// Makes one examination and judges its facts. Returns `names` as unknown if it fails.
    async fn ask<T: DeserializeOwned>(
        &mut self,
        names: &[&'static str],
        examination: Examination,
        judge: impl FnOnce(T) -> Vec<Check>,
    ) -> Vec<Check> {
        let now = self.engine.now();
        let facts = self.within_limits(names, async |conn| examine(conn, examination, now).await).await;
        facts.map_or_else(|unknown| unknown, judge)
    }

    /// Runs `work` in a transaction of its own whose statements are limited, so that its failure leaves no trace. Returns
    /// `names` as unknown checks if it fails.
    async fn within_limits<T>(
        &mut self,
        names: &[&'static str],
        work: impl AsyncFnOnce(&mut PooledConnection) -> Result<T, Error>,
    ) -> Result<T, Vec<Check>> {
        let limit = EXAMINATION_LIMIT.min(self.deadline.saturating_duration_since(Instant::now()));
        let result = match &mut self.conn {
            Err(_) => Err("the database could not be asked".to_owned()),
            Ok(_) if limit.is_zero() => Err("not examined: the examinations before took too long".to_owned()),
            Ok(conn) => {
                let examining = async {
                    begin(conn, limit).await?;
                    let facts = work(conn).await;
                    roll_back(conn).await?;
                    facts
                };
                if let Ok(result) = timeout(limit + GRACE, examining).await {
                    result.map_err(|error| error.to_string())
                } else {
                    // Its answer may still come, and would be taken for that of the next question.
                    self.conn = Err("it did not answer".into());
                    Err("the database did not answer in time".to_owned())
                }
            }
        };
        result.map_err(|reason| names.iter().map(|name| Check::unknown(name, reason.as_str(), None)).collect())
    }
}
