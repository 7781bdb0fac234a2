//! What a search for the rows of an operation costs, measured in buffers.

use waybill::domain::ids::{DeliveryId, EventId, NamespaceId};
use waybill::domain::scope::Scope;
use waybill::domain::status::Status;
use waybill::store::lists::candidates::{Walk, find_candidates};
use waybill::store::lists::dead_letters::DeadLetterFilter;
use waybill::store::lists::events::EventFilter;
use waybill::store::lists::pushes::PushFilter;
use waybill::store::lists::targets::Target;
use waybill::store::tables::roll_ups::read_work_of_events;

use crate::support::{App, database};

const SCAN: i64 = 500;

/// Starts a server with a history of completed events, each with a push. Every 1,000th of both has failed.
async fn with_history(events: i64) -> App {
    let app = App::start().await;
    let status = "CASE WHEN n % 1000 = 0 THEN 'FAILED' ELSE 'COMPLETED' END::waybill.status";
    let listed = "CASE WHEN n % 1000 = 0 THEN 'FAILED'::waybill.status END";
    let sql = format!(
        "INSERT INTO waybill.events (id, title, tags) SELECT n, 'a job', 'bulk' FROM generate_series(1, {events}) n; \
         INSERT INTO waybill.deliveries (id, event_id, status, listed_status, priority, max_retries, lease_id) \
             SELECT n, n, {status}, {listed}, 0, 3, 1 FROM generate_series(1, {events}) n; \
         INSERT INTO waybill.deliveries (id, event_id, subscription_id, status, listed_status, priority, max_retries, lease_id) \
             SELECT {events} + n, n, 1 + n % 2, {status}, {listed}, 0, 3, 1 FROM generate_series(1, {events}) n; \
         SELECT setval('waybill.ids', 2 * {events}); \
         ANALYZE waybill.events; ANALYZE waybill.deliveries"
    );
    database::execute(&app.url, &sql).await;
    app
}

#[tokio::test(flavor = "multi_thread")]
async fn a_search_costs_the_same_in_a_long_history_as_in_a_short_one() {
    let (events, tagged) =
        (EventFilter::default(), EventFilter { tags: vec!["rare".into()], ..EventFilter::default() });
    let (pushes, letters) = (PushFilter::default(), DeadLetterFilter::default());
    let of_one = PushFilter { subscription_id: Some(1.into()), ..PushFilter::default() };
    let (unhappy, open) = ([Status::Failed, Status::Cancelled], [Status::Pending, Status::Processing]);
    let targets = [
        Target::Events { filter: &events, statuses: &unhappy },
        Target::Events { filter: &tagged, statuses: &unhappy },
        Target::Events { filter: &events, statuses: &open },
        Target::HeldEvents { filter: &events, silent_seconds: Some(0.0) },
        Target::Pushes { filter: &pushes, statuses: &unhappy, failed_must_block: false },
        Target::Pushes { filter: &pushes, statuses: &open, failed_must_block: true },
        Target::Pushes { filter: &of_one, statuses: &open, failed_must_block: true },
        Target::DeadLetters { filter: &letters },
    ];
    let (short, long) = (with_history(2_000).await, with_history(12_000).await);
    let scope = Scope::new(NamespaceId::DEFAULT, None);
    for target in targets {
        let mut costs = Vec::new();
        for (app, after) in [(&short, 0), (&long, 0), (&long, 9_000)] {
            let walk = Walk { ids: &[], after, until: i64::MAX, limit: 20, scan: SCAN };
            let search = async |conn: &mut _| find_candidates(conn, &scope, target, walk).await;
            costs.push(app.buffers_of(search).await.1);
        }
        let cheapest = costs.iter().min().expect("costs");
        assert!(costs.iter().all(|cost| *cost <= 2 * cheapest + 200), "{target:?}: {costs:?}");
        assert!(costs.iter().all(|cost| *cost <= 12 * SCAN), "{target:?}: {costs:?}");
    }
}

/// A search stops as soon as it has found enough.
#[tokio::test(flavor = "multi_thread")]
async fn a_search_that_finds_enough_does_not_read_on() {
    let app = with_history(2_500).await;
    let filter = EventFilter { tags: vec!["bulk".into()], ..EventFilter::default() };
    let scope = Scope::new(NamespaceId::DEFAULT, None);
    let target = Target::Events { filter: &filter, statuses: &[Status::Completed] };
    let walk = |limit| Walk { ids: &[], after: 0, until: i64::MAX, limit, scan: 2_000 };
    let (few, cost_of_few) = app.buffers_of(async |conn| find_candidates(conn, &scope, target, walk(10)).await).await;
    let (many, cost_of_many) =
        app.buffers_of(async |conn| find_candidates(conn, &scope, target, walk(5_000)).await).await;
    assert_eq!((few.ids, few.next), ((1..=10).collect(), Some(10)));
    assert_eq!((many.ids.len(), many.next), (1_998, Some(2_000)));
    assert!(cost_of_few * 20 < cost_of_many, "{cost_of_few} and {cost_of_many}");
}

/// A connection keeps the plan that it made while the table was empty.
#[tokio::test(flavor = "multi_thread")]
async fn the_pushes_of_events_are_looked_up_even_without_statistics() {
    const EVENTS: i64 = 5_000;
    let app = App::start().await;
    database::execute(&app.url, "ALTER TABLE waybill.deliveries SET (autovacuum_enabled = false)").await;
    let fill = format!(
        "INSERT INTO waybill.events (id, title, tags, event_type) \
             SELECT n, 'a push', '', 'a.b' FROM generate_series(1, {EVENTS}) n; \
         INSERT INTO waybill.deliveries (id, event_id, status, listed_status, priority, max_retries, open_deliveries, failed_deliveries) \
             SELECT n, n, 'FAILED', 'FAILED', 0, 3, 0, 1 FROM generate_series(1, {EVENTS}) n; \
         INSERT INTO waybill.deliveries (id, event_id, subscription_id, status, listed_status, priority, max_retries) \
             SELECT {EVENTS} + n, n, 1, 'FAILED', 'FAILED', 0, 3 FROM generate_series(1, {EVENTS}) n"
    );
    let ids: Vec<EventId> = (EVENTS - 49..=EVENTS).map(EventId).collect();
    let read = async |conn: &mut _| {
        read_work_of_events(conn, &Scope::new(NamespaceId::DEFAULT, None), &ids, DeliveryId(0), &["FAILED"], 51).await
    };
    let (work, cost) = app
        .buffers_of(async |conn| {
            read(conn).await?;
            database::execute(&app.url, &fill).await;
            read(conn).await
        })
        .await;
    assert_eq!(work.len(), ids.len());
    assert!(cost <= 12 * ids.len() as i64, "{cost} buffers for {} events", ids.len());
}
