//! Faults of connections and servers. All of them end on their own.

use std::time::Duration;

use diesel::sql_types::Integer;
use diesel::{QueryableByName, sql_query};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::time::{Instant, sleep};

use super::servers::Servers;
use crate::support::{Rng, database};

/// The longest time for which a connection is frozen.
const LONGEST_FREEZE_MS: u64 = 1_000;

/// A PostgreSQL backend that is suspended until this is dropped.
struct Frozen(Pid);

impl Frozen {
    fn new(pid: i32) -> Option<Self> {
        let pid = Pid::from_raw(pid);
        kill(pid, Signal::SIGSTOP).ok().map(|()| Frozen(pid))
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        // It may have ended: a terminated process ends only once it continues.
        let _ = kill(self.0, Signal::SIGCONT);
    }
}

#[derive(QueryableByName)]
struct Backend {
    #[diesel(sql_type = Integer)]
    pid: i32,
}

async fn backends(conn: &mut AsyncPgConnection) -> Vec<i32> {
    // Busy backends first: freezing an idle one has no effect.
    let sql = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() \
               AND backend_type = 'client backend' ORDER BY (state = 'idle'), pid LIMIT 8";
    let rows: Vec<Backend> = sql_query(sql).load(conn).await.expect("rows");
    rows.into_iter().map(|row| row.pid).collect()
}

/// Freezes and terminates database connections.
pub(super) async fn to_connections(servers: &Servers, mut rng: Rng, until: Instant) {
    let mut conn = database::connection(&servers.url).await;
    while Instant::now() < until {
        let backends = backends(&mut conn).await;
        let Some(pid) = rng.pick(&backends).copied() else { continue };
        let pause = Duration::from_millis(rng.below(150));
        if rng.one_in(2) {
            let frozen = Frozen::new(pid);
            sleep(Duration::from_millis(rng.below(LONGEST_FREEZE_MS))).await;
            drop(frozen);
        } else {
            sql_query(format!("SELECT pg_terminate_backend({pid})")).execute(&mut conn).await.expect("a row");
        }
        sleep(pause).await;
    }
}

/// Kills servers and starts them again.
pub(super) async fn to_servers(servers: &Servers, mut rng: Rng, until: Instant) {
    while Instant::now() < until {
        sleep(Duration::from_millis(rng.below(900))).await;
        servers.kill_and_restart(rng.below(servers.len() as u64) as usize).await;
    }
}
