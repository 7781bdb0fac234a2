//! Several servers on one database, random work under leases of one second, and random faults:
//! database connections that freeze or end, servers that are killed and started again. When the
//! faults have stopped, the state agrees with the log, and all waiting work is handed out in time.
//!
//! The choices come from a seed, which is printed when the test fails; the timing differs from run
//! to run. `WAYBILL_CHAOS_SEED` sets the seed, `WAYBILL_CHAOS_ROUNDS` the number of rounds
//! (`make chaos` runs many).

mod peace;
mod servers;
mod trouble;
mod work;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::Instant;

use crate::support::{ClusterDir, Rng};
use servers::Servers;
use work::{Promises, QUIET_TAGS};

const ROUNDS: u64 = 3;
const ROUND: Duration = Duration::from_millis(2_500);
const SERVERS: usize = 3;
const WORKERS: u64 = 12;

fn number_from(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} is no number: {text}")))
}

fn some_seed() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    u64::from(now.expect("a clock").subsec_nanos())
}

/// Runs workers and faults for a while.
async fn run_round(servers: &Servers, promises: &Promises, seed: u64) {
    let stop = AtomicBool::new(false);
    let working = join_all((0..WORKERS).map(|number| {
        let rng = Rng::new(seed ^ (number + 1) << 32);
        work::work_erratically(servers, promises, number, rng, &stop)
    }));
    let until = Instant::now() + ROUND;
    let troubling = async {
        tokio::join!(
            trouble::to_connections(servers, Rng::new(seed ^ 0xc0), until),
            trouble::to_servers(servers, Rng::new(seed ^ 0x5e), until)
        );
        stop.store(true, Ordering::Relaxed);
    };
    tokio::join!(working, troubling);
}

#[tokio::test(flavor = "multi_thread")]
async fn after_random_faults_nothing_is_lost_and_all_waiting_work_is_handed_out() {
    let seed = number_from("WAYBILL_CHAOS_SEED").unwrap_or_else(some_seed);
    let rounds = number_from("WAYBILL_CHAOS_ROUNDS").unwrap_or(ROUNDS);
    println!("WAYBILL_CHAOS_SEED={seed}");
    // A separate PostgreSQL, because a frozen one would block other tests.
    let cluster_dir = ClusterDir::with_cluster();
    let cluster = cluster_dir.start();
    let servers = Servers::start(cluster.url("postgres"), SERVERS).await;
    let promises = Promises::default();
    let places = (0..SERVERS).flat_map(|server| QUIET_TAGS.map(|tag| (server, tag)));
    let waiting = join_all(places.map(|(server, tag)| peace::wait_through_faults(&servers, server, tag)));
    let all_rounds = async {
        for round in 0..rounds {
            println!("round {round}");
            run_round(&servers, &promises, seed.wrapping_add(round)).await;
            servers.until_undisturbed().await;
            peace::check(&servers, &promises).await;
        }
    };
    tokio::select! {
        _ = waiting => unreachable!("they wait forever"),
        () = all_rounds => {}
    }
    servers.stop().await;
}
