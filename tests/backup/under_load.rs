//! A backup that is taken while servers work.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::join_all;
use serde_json::json;

use super::{Place, summary_of};
use crate::support::work::{Claim, Naming};
use crate::support::{App, ClusterDir, database, ledger, until};

const WORKERS: usize = 4;
/// More events than this are not published, whatever the backup takes.
const MOST_EVENTS: usize = 20_000;
const FEW_EVENTS: usize = 200;

/// What clients were told.
#[derive(Default)]
struct Promises {
    published: Mutex<Vec<i64>>,
    completed: Mutex<Vec<i64>>,
    stop: AtomicBool,
}

impl Promises {
    fn so_far(list: &Mutex<Vec<i64>>) -> Vec<i64> {
        list.lock().expect("not poisoned").clone()
    }

    async fn publish(&self, app: &App) {
        let mut count = 0;
        while !self.stop.load(Ordering::Relaxed) && count < MOST_EVENTS {
            let key = format!("key-{}", count % 5);
            let event = match count % 3 {
                0 => json!({"title": "a job", "tags": "a,b", "ordering_key": key}),
                _ => json!({"title": "a job", "tags": "a", "payload": {"n": count}}),
            };
            let id = app.publish(event).await;
            self.published.lock().expect("not poisoned").push(id);
            count += 1;
        }
    }

    async fn work(&self, app: &App, worker_id: &str) {
        while !self.stop.load(Ordering::Relaxed) {
            for event in app.claim_batch("a,b", worker_id, 3).await {
                let claim = Claim::of(&event);
                match claim.event_id % 7 {
                    // Some are held, some fail: the backup has every state.
                    0 => {}
                    1 => drop(app.settle(&claim, "fail", Naming::Lease).await.expect(200)),
                    _ => {
                        app.settle(&claim, "complete", Naming::Lease).await.expect(200);
                        self.completed.lock().expect("not poisoned").push(claim.event_id);
                    }
                }
            }
        }
    }
}

async fn ids(url: &str, filter: &str) -> BTreeSet<i64> {
    #[derive(diesel::QueryableByName)]
    struct Row {
        #[diesel(sql_type = diesel::sql_types::BigInt)]
        id: i64,
    }
    let query = diesel::sql_query(format!("SELECT event_id AS id FROM waybill.deliveries WHERE {filter}"));
    let rows = diesel_async::RunQueryDsl::load::<Row>(query, &mut database::connection(url).await).await;
    rows.expect("the deliveries").into_iter().map(|row| row.id).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_under_load_is_restored_elsewhere_with_all_that_was_acknowledged_before() {
    let (first, second) = (ClusterDir::with_cluster(), ClusterDir::with_cluster());
    let file = first.root().join("waybill.backup");
    let server = Place::Embedded(&first).serve(&[]);
    let promises = Promises::default();
    let app = &server.app;
    let backing_up = async {
        until("there is some work", async || Promises::so_far(&promises.completed).len() > FEW_EVENTS).await;
        let before = (Promises::so_far(&promises.published), Promises::so_far(&promises.completed));
        let summary = summary_of(Place::Embedded(&first).backup(&file)).await;
        promises.stop.store(true, Ordering::Relaxed);
        (before, summary)
    };
    let names: Vec<String> = (0..WORKERS).map(|number| format!("worker:{number}")).collect();
    let working = join_all(names.iter().map(|name| promises.work(app, name)));
    let ((), (), _, ((published, completed), summary)) =
        tokio::join!(promises.publish(app), promises.publish(app), working, backing_up);
    let last_id = app.publish_tagged("after the backup").await;
    let lost_lease = Claim::of(&app.claim("after%20the%20backup", "worker:99").await.expect("an event")).lease_id;
    ledger::check(app).await;
    server.stop().await;

    let restored = summary_of(Place::Embedded(&second).restore(&file)).await;
    assert_eq!(restored["tables"], summary["tables"]);
    assert_ne!(restored["new_epoch"], restored["epoch"]);
    let server = Place::Embedded(&second).serve(&["--auto-reset", "false"]);
    assert!(!server.stderr().contains("a new history begins"), "the restore has begun it: {}", server.stderr());
    ledger::check(&server.app).await;
    let there = ids(&server.app.url, "true").await;
    let missing: Vec<&i64> = published.iter().filter(|id| !there.contains(id)).collect();
    assert_eq!(missing, Vec::<&i64>::new());
    let finished = ids(&server.app.url, "status = 'COMPLETED'").await;
    let unfinished: Vec<&i64> = completed.iter().filter(|id| !finished.contains(id)).collect();
    assert_eq!(unfinished, Vec::<&i64>::new());
    assert_eq!(there.len() as i64, summary["tables"]["events"].as_i64().expect("a number"));

    // It serves, and issues no number a second time.
    assert!(server.app.publish_tagged("c").await > last_id);
    let claim = server.app.claim_one("c", "worker:1").await;
    assert!(claim.lease_id > lost_lease);
    server.app.settle(&claim, "complete", Naming::Lease).await.expect(200);
    ledger::check(&server.app).await;
}
