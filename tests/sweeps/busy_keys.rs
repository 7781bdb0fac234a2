//! An ordering key whose lock is never free: its overdue work queues for the lock and is swept in
//! the end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use diesel_async::SimpleAsyncConnection;
use serde_json::json;
use tokio::task::JoinHandle;
use waybill::background::busy_keys;

use super::{KINDS, UNTIL_OVERDUE, key_lock, lock_key};
use crate::support::{App, database, ledger, until};

/// Two callers that hand a key's lock to each other, so it is never free.
struct BusyKey {
    is_over: Arc<AtomicBool>,
    callers: Vec<JoinHandle<()>>,
}

impl BusyKey {
    async fn start(app: &App, key: &str) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let waiting = format!(
            "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted \
             AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) AND objid = {}",
            key_lock(app, key).await
        );
        let caller = |_| {
            let (url, waiting, is_over) = (app.url.clone(), waiting.clone(), is_over.clone());
            let lock = super::lock_key_sql(key);
            tokio::spawn(async move {
                let mut conn = database::connection(&url).await;
                while !is_over.load(Ordering::Acquire) {
                    conn.batch_execute(&format!("BEGIN; {lock}")).await.expect("the lock");
                    while database::count(&url, &waiting).await == 0 && !is_over.load(Ordering::Acquire) {}
                    conn.batch_execute("COMMIT").await.expect("the lock is released");
                }
            })
        };
        let callers = (0..2).map(caller).collect();
        let busy = BusyKey { is_over, callers };
        until("the key is in use", async || app.count(&waiting).await > 0).await;
        busy
    }

    async fn stop(self) {
        self.is_over.store(true, Ordering::Release);
        for caller in self.callers {
            caller.await.expect("no panic");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn overdue_work_of_a_key_whose_lock_is_never_free_is_swept() {
    for kind in KINDS {
        let app = App::with_fixed_clock().await;
        kind.prepare(&app, 1, |_| json!({"title": "a job", "tags": "a", "ordering_key": "busy"})).await;
        app.advance(UNTIL_OVERDUE + 1);
        let busy = BusyKey::start(&app, "busy").await;
        for _ in 0..3 {
            assert_eq!(kind.run(&app).await, 0, "{kind:?}: a sweep only tries the lock");
        }
        until("it is swept", async || busy_keys::run_once(app.engine(), true).await.expect("a round") == 1).await;
        busy.stop().await;
        app.advance(1);
        assert_eq!(kind.run(&app).await, 0, "{kind:?}: nothing is left");
        ledger::check(&app).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_is_locked_for_long_does_not_delay_other_keys() {
    for kind in KINDS {
        let app = App::with_fixed_clock().await;
        let with_key = |n: usize| json!({"title": "a job", "tags": "a", "ordering_key": format!("k{n}")});
        kind.prepare(&app, 3, with_key).await;
        app.advance(UNTIL_OVERDUE + 1);
        let held = lock_key(&app, "k1").await;
        assert_eq!(busy_keys::run_once(app.engine(), true).await.expect("a round"), 2, "{kind:?}");
        held.unlock().await;
        assert_eq!(busy_keys::run_once(app.engine(), true).await.expect("a round"), 1, "{kind:?}");
        ledger::check(&app).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn leases_of_busy_keys_are_not_reset_if_resets_are_disabled() {
    let app = App::with_fixed_clock().await;
    super::Kind::LostLeases.prepare(&app, 1, |_| json!({"title": "a job", "tags": "a", "ordering_key": "busy"})).await;
    app.advance(UNTIL_OVERDUE + 1);
    assert_eq!(busy_keys::run_once(app.engine(), false).await.expect("a round"), 0);
}
