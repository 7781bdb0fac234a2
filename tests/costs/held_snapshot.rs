//! A connection left idle in a transaction keeps PostgreSQL from removing deleted rows, and every
//! scan for work steps over all of them. That is how most queues on PostgreSQL die, so it must not
//! cost anything here.

use std::time::Duration;

use chrono::{DateTime, SecondsFormat, Utc};
use diesel_async::SimpleAsyncConnection;
use waybill::background::{lease_reaper, promoter};
use waybill::domain::delivery::Report;
use waybill::domain::event::{NewEvent, RunAt};
use waybill::domain::ids::NamespaceId;
use waybill::domain::lease::Caller;
use waybill::domain::tags::Tags;
use waybill::engine::claim::ClaimRequest;
use waybill::engine::settle::{SettleCall, Settlement};
use waybill::engine::waiting::due_times::DueKind;
use waybill::store::tables::ready::QueueKey;

use super::{Lab, buffers, claim_from};
use crate::support::{App, database};

/// The number of events that pass through while the snapshot is held.
const EVENTS: usize = 200_000;
const BATCH: usize = 500;

/// The factor by which the cost of a scan may grow.
const MOST_GROWTH: u64 = 3;

/// Returns events that are due in a second.
fn delayed(app: &App) -> Vec<NewEvent> {
    let event = NewEvent {
        tags: Tags::from_comma_separated("a").expect("a tag"),
        run_at: RunAt::At(app.now() + Duration::from_secs(1)),
        ..NewEvent::titled("a job".into())
    };
    vec![event; BATCH]
}

/// A batch of events becomes due, is claimed and completed, and its leases are checked.
async fn pass_through(app: &App) {
    let engine = app.engine();
    engine.publish_events(NamespaceId::DEFAULT, delayed(app).into()).await.expect("stored");
    app.advance(1);
    assert_eq!(promoter::run_once(engine).await.expect("a round"), BATCH);
    // Claimed in several calls, each of which leaves its row in the lease watch.
    for _ in 0..10 {
        let request = ClaimRequest {
            tags: Tags::from_comma_separated("a").expect("a tag"),
            worker_id: "host:1".into(),
            max: BATCH / 10,
            wait: Duration::ZERO,
            lease_seconds: 5.0,
            idempotency_key: None,
            tag_patterns: None,
        };
        let mut claimed = engine.claim_deliveries(NamespaceId::DEFAULT, request).await.expect("work");
        let calls: Vec<SettleCall> = claimed
            .events()
            .iter()
            .map(|row| SettleCall {
                delivery: NamespaceId::DEFAULT.delivery(row.event.id.own_delivery()),
                caller: Caller { worker_id: "host:1".into(), lease_id: Some(row.work.lease_id) },
                settlement: Settlement::Complete(Report::default()),
                push_ended_at: None,
                tag_patterns: None,
            })
            .collect();
        assert_eq!(calls.len(), BATCH / 10);
        claimed.delivered();
        let settled = engine.settle_deliveries(NamespaceId::DEFAULT, calls).await.expect("settled");
        assert!(settled.iter().all(Result::is_ok));
    }
    app.advance(6);
    assert_eq!(lease_reaper::run_once(engine).await.expect("a round"), 0);
}

/// Returns the buffers that the server's scans would read now, starting at their low-water marks: a
/// claim of one event, the scan for due work and the scan for expired leases.
async fn costs_of_scans(app: &App, lab: &mut Lab) -> [u64; 3] {
    let engine = app.engine();
    let mark = engine.low_water_marks().of(&[QueueKey::of_tag(NamespaceId::DEFAULT, "a")])[0];
    let from = |moment| engine.due_times().scan(moment).from().map_or("NULL".to_owned(), quoted);
    let now = quoted(app.now());
    let scans = [
        claim_from(1, "a", mark, &now),
        format!("EXECUTE due({now}, 500, {})", from(DueKind::Due)),
        format!("EXECUTE watched({now}, 100, {}, 500, 0, false)", from(DueKind::LeaseEnd)),
    ];
    let mut costs = [0; 3];
    for (cost, scan) in costs.iter_mut().zip(scans) {
        lab.execute("BEGIN").await;
        *cost = buffers(&lab.explain(&scan).await);
        lab.execute("ROLLBACK").await;
    }
    costs
}

/// Returns the same costs while the server's sweeps run, with an event to be claimed. Takes the
/// least of three runs: a log line may find its page full and search for another, and a catch-up
/// scan may lower a low-water mark until the next scan.
async fn costs(app: &App, lab: &mut Lab) -> [u64; 3] {
    let engine = app.engine();
    app.publish_tagged("a").await;
    let mut least = [u64::MAX; 3];
    for _ in 0..3 {
        promoter::run_once(engine).await.expect("a round");
        lease_reaper::run_once(engine).await.expect("a round");
        let costs = costs_of_scans(app, lab).await;
        least.iter_mut().zip(costs).for_each(|(least, cost)| *least = cost.min(*least));
    }
    let claimed = app.claim("a", "host:1").await.expect("the event");
    app.complete(claimed["id"].as_i64().expect("an id"), "host:1").await.expect(200);
    least
}

fn quoted(time: DateTime<Utc>) -> String {
    format!("'{}'", time.to_rfc3339_opts(SecondsFormat::Micros, true))
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_thousand_events_under_a_held_snapshot_do_not_make_the_next_scan_more_expensive() {
    let app = App::with_fixed_clock().await;
    let mut lab = Lab::open(&app.url).await;
    pass_through(&app).await;
    costs(&app, &mut lab).await;
    let fresh = costs(&app, &mut lab).await;

    let mut holder = database::connection(&app.url).await;
    let hold = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM waybill.ready";
    holder.batch_execute(hold).await.expect("a snapshot");
    for _ in 0..EVENTS / BATCH {
        pass_through(&app).await;
    }
    let dead = app.count("SELECT n_dead_tup FROM pg_stat_user_tables WHERE relname = 'ready'").await;
    let aged = costs(&app, &mut lab).await;
    println!("claim, due, leases: {fresh:?} buffers when fresh, {aged:?} after {EVENTS} events, {dead} of them dead");
    for (name, (fresh, aged)) in ["claim", "due", "leases"].iter().zip(fresh.into_iter().zip(aged)) {
        assert!(fresh > 0 && aged <= fresh * MOST_GROWTH, "{name}: {aged} buffers, {fresh} when fresh");
    }

    // Without the low-water marks the same scans step over everything, which shows that the
    // snapshot was really held.
    forget_low_water_marks(&app);
    let unmarked = costs_of_scans(&app, &mut lab).await;
    assert!(unmarked[0] > aged[0] * 20 && unmarked[1] > aged[1] * 20, "{unmarked:?} buffers without low-water marks");
    holder.batch_execute("COMMIT").await.expect("the snapshot is released");
}

fn forget_low_water_marks(app: &App) {
    app.engine().low_water_marks().forget();
    app.engine().due_times().forget();
}
