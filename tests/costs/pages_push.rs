//! What the pages about pushes cost, in buffers: with 50 subscriptions, of which one has 100,000 pushes and the others 1,000
//! each. The database is not that of `lists/`: the rows of this one would lie among those that other tests measure.

use tokio::sync::OnceCell;
use waybill::domain::ids::{DeliveryId, NamespaceId, SubscriptionId};
use waybill::domain::scope::Scope;
use waybill::domain::status::Status;
use waybill::store::lists::dead_letters::{DeadLetterFilter, list_dead_letters};
use waybill::store::lists::pages::Page;
use waybill::store::lists::pushes::{PushFilter, list_pushes};
use waybill::store::lists::subscription_health::{HealthSample, attempts_of_subscription, read_subscription_health};
use waybill::store::tables::push_log::attempts_of_push;

use crate::support::{App, Options, database};

const SUBSCRIPTIONS: i64 = 50;

/// The samples of the list and of one subscription.
const OF_LIST: HealthSample = HealthSample { waiting: 1_000, scan: 100, pushes: 20, dead_letters: 50 };
const OF_ONE: HealthSample = HealthSample { waiting: 10_000, scan: 1_000, pushes: 100, dead_letters: 1_000 };

/// Pushes of 100,000 events, one per second, to the first subscription, and of 1,000 of them to each other one. One in ten has failed and is a dead letter; the last 2,000 of the first subscription wait.
const PUSHES: &str = "
    SELECT waybill.enforce_rules(false);
    SELECT waybill.create_event_log_partition((now() - n * interval '1 week')::date) FROM generate_series(-1, 4) n;
    INSERT INTO waybill.events (id, title, tags, event_type, created_at)
        SELECT n, 'an event', '', 'order.paid', now() - (5100000 - n) * interval '1 second' FROM generate_series(5000001, 5100000) n;
    CREATE TEMP TABLE pushes AS
        SELECT 6000000 + n * 2 AS id, 5000000 + n AS event_id, 1::bigint AS subscription_id, n > 98000 AS waits FROM generate_series(1, 100000) n
        UNION ALL
        SELECT 6000001 + n * 2, 5000000 + n, 2 + n % 49, false FROM generate_series(1, 49000) n;
    INSERT INTO waybill.deliveries (id, event_id, subscription_id, status, listed_status, priority, max_retries, lease_id, updated_at, ready_seq)
        SELECT id, event_id, subscription_id,
               (CASE WHEN waits THEN 'PENDING' WHEN event_id % 10 = 0 THEN 'FAILED' ELSE 'COMPLETED' END)::waybill.status,
               CASE WHEN NOT waits AND event_id % 10 = 0 THEN 'FAILED'::waybill.status END, 0, 4,
               CASE WHEN waits THEN 0 ELSE id END, now() - (5100001 - event_id) * interval '1 second', CASE WHEN waits THEN id END
        FROM pushes ORDER BY pushes.id;
    INSERT INTO waybill.ready (seq, delivery_id, rank, queue)
        SELECT id, id, 0, 's:1' FROM pushes WHERE waits;
    INSERT INTO waybill.event_log (created_at, event_id, delivery_id, lease_id, attempt, action, worker_id, status_code, execution_time_ms)
        SELECT now() - (5100001 - p.event_id) * interval '1 second', p.event_id, p.id, p.id, 1, a.action::waybill.action, 'a server', 200, p.id % 90
        FROM pushes p, (VALUES ('PICKED'), ('ENDED')) w(word),
             LATERAL (SELECT CASE WHEN w.word = 'PICKED' THEN 'PICKED' WHEN p.event_id % 10 = 0 THEN 'FAILED' ELSE 'COMPLETED' END AS action) a
        WHERE NOT p.waits ORDER BY p.event_id, p.id, w.word DESC;
    INSERT INTO waybill.dead_letters (delivery_id, event_id, subscription_id, subscription_version, reason, created_at, event, subscription, attempts)
        SELECT id, event_id, subscription_id, 1, 'exhausted', now(), '{}', '{}', '[]' FROM pushes WHERE NOT waits AND event_id % 10 = 0 ORDER BY pushes.id;
";

static URL: OnceCell<String> = OnceCell::const_new();

/// Returns a server on the shared database. Nothing happens there on its own.
async fn app() -> App {
    let url = URL.get_or_init(|| async {
        let url = database::migrated().await;
        database::execute(&url, PUSHES).await;
        database::execute(&url, "VACUUM ANALYZE").await;
        url
    });
    let flags = ["--auto-reset=false", "--dispatch=false", "--check-rules=false"].map(str::to_owned).to_vec();
    App::start_with(Options { url: Some(url.await.clone()), flags, fixed_clock: true }).await
}

fn scope() -> Scope {
    Scope::new(NamespaceId::DEFAULT, None)
}

fn page() -> Page {
    Page { descending: true, after: None, limit: 50, scan: 10_000 }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_health_of_subscriptions_costs_the_same_however_many_pushes_they_have() {
    let (app, scope) = (app().await, scope());
    let all: Vec<SubscriptionId> = (1..=SUBSCRIPTIONS).map(SubscriptionId).collect();
    let (found, buffers) =
        app.buffers_of_repeated(async |conn| read_subscription_health(conn, &scope, &all, OF_LIST).await).await;
    println!("the health of {SUBSCRIPTIONS} subscriptions: {buffers} buffers");
    assert_eq!(found.len(), all.len());
    let first = found.iter().find(|health| health.subscription_id.0 == 1).expect("the first");
    assert_eq!(
        (first.waiting(OF_LIST), first.attempts, first.dead_letters),
        ((1_000, false), 0, 51),
        "its newest only wait"
    );
    for health in found.iter().filter(|health| health.subscription_id.0 != 1) {
        assert_eq!((health.waiting(OF_LIST), health.attempts), ((0, true), OF_LIST.pushes), "{health:?}");
    }
    assert!(buffers <= 15_000, "{buffers} buffers");
    for (id, most) in [(1, 2_500), (2, 4_000)] {
        let one = [SubscriptionId(id)];
        let (_, health) =
            app.buffers_of_repeated(async |conn| read_subscription_health(conn, &scope, &one, OF_ONE).await).await;
        let (_, attempts) = app
            .buffers_of_repeated(async |conn| attempts_of_subscription(conn, &scope, one[0], OF_ONE, 50).await)
            .await;
        println!("subscription {id}: {health} + {attempts} buffers");
        assert!(health + attempts <= most, "subscription {id}: {health} + {attempts} buffers");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_of_deliveries_and_dead_letters_are_read_at_a_bounded_cost() {
    let (app, scope) = (app().await, scope());
    let of_first = Some(SubscriptionId(1));
    let deliveries = [
        ("all", PushFilter::default(), 500),
        ("failed", PushFilter { status: Some(Status::Failed), ..PushFilter::default() }, 500),
        ("of a subscription", PushFilter { subscription_id: of_first, ..PushFilter::default() }, 500),
        // Nothing has these states among them: the whole scan is read.
        (
            "cancelled",
            PushFilter { status: Some(Status::Cancelled), subscription_id: of_first, ..PushFilter::default() },
            3_000,
        ),
        ("failing", PushFilter { failing: Some(true), ..PushFilter::default() }, 3_000),
        ("processing", PushFilter { status: Some(Status::Processing), ..PushFilter::default() }, 3_000),
    ];
    for (name, filter, most) in deliveries {
        let (_, buffers) = app.buffers_of_repeated(async |conn| list_pushes(conn, &scope, &filter, page()).await).await;
        println!("deliveries, {name}: {buffers} buffers");
        assert!(buffers <= most, "{name}: {buffers} buffers");
    }
    let letters = [
        ("all", DeadLetterFilter::default(), 200),
        ("of a subscription", DeadLetterFilter { subscription_id: of_first, ..DeadLetterFilter::default() }, 200),
        ("replayed", DeadLetterFilter { replayed: Some(true), ..DeadLetterFilter::default() }, 1_000),
    ];
    for (name, filter, most) in letters {
        let (_, buffers) =
            app.buffers_of_repeated(async |conn| list_dead_letters(conn, &scope, &filter, page()).await).await;
        println!("dead letters, {name}: {buffers} buffers");
        assert!(buffers <= most, "{name}: {buffers} buffers");
    }
    let (attempts, buffers) = app
        .buffers_of_repeated(async |conn| {
            attempts_of_push(conn, &scope, DeliveryId(6_100_000), chrono::Utc::now(), 500).await
        })
        .await;
    println!("the attempts of a delivery: {buffers} buffers");
    assert_eq!(attempts.len(), 1);
    assert!(buffers <= 50, "{buffers} buffers");
}
