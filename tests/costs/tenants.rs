//! What namespaces cost each other: calls of many share statements, and a small one reads only its own rows.

use diesel_async::{AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};
use serde_json::{Value, json};
use waybill::domain::action::Action;
use waybill::domain::ids::NamespaceId;
use waybill::domain::scope::Scope;
use waybill::domain::status::Status;
use waybill::store::connection::database::SETUP;
use waybill::store::connection::migrate::migrate;
use waybill::store::lists::events::{EventFilter, list_events};
use waybill::store::lists::log_entries::{LogFilter, list_log_entries};
use waybill::store::statement::{numbered, parameter_types};

use super::buffers;
use super::lists::{app as app_with_a_million, page};
use super::statements::{CALLERS, MOST_STATEMENTS, at_once, counting_cluster, runs};
use crate::support::{App, ClusterDir, Options, database};

/// Callers of as many namespaces share as few statements as callers of one: the first call of each batch goes ahead
/// alone, and all others go together.
#[tokio::test(flavor = "multi_thread")]
async fn calls_of_sixty_four_namespaces_share_as_few_statements_as_those_of_one() {
    let cluster_dir = ClusterDir::new();
    let cluster = tokio::task::block_in_place(|| counting_cluster(&cluster_dir.data_dir()));
    let url = cluster.url("postgres");
    migrate(&url).await.expect("the migrations run");
    database::execute(&url, "CREATE EXTENSION pg_stat_statements").await;
    let app = App::start_with(Options { url: Some(url), ..Options::default() }).await;
    let mut teams = Vec::new();
    for n in 0..CALLERS {
        let team = app.namespace(&format!("team-{n}")).await;
        // The first event of a namespace loads its subscriptions.
        team.publish_tagged("first").await;
        teams.push(team);
    }
    let verbs = ["-- publish_events", "-- claim_deliveries", "-- complete_deliveries"];
    let mut before = Vec::new();
    for words in verbs {
        before.push(runs(&app, words).await);
    }

    let publish =
        async |n: usize| teams[n].post("/events", &json!({"title": "a job", "tags": "a"})).await.expect(201).json();
    at_once(&app, "waybill.events", 2, |queued| queued.publish, publish).await;
    let claim = async |n: usize| teams[n].claim("a", "host:1").await.expect("an event");
    let claimed = at_once(&app, "waybill.deliveries", 1, |queued| queued.claim, claim).await;
    let complete = async |n: usize| {
        let body = json!({"worker_id": "host:1", "lease_id": claimed[n]["lease_id"]});
        teams[n].post(&format!("/events/{}/complete", claimed[n]["id"]), &body).await.expect(200).json()
    };
    at_once(&app, "waybill.event_log", 2, |queued| queued.settle, complete).await;

    assert_eq!(app.count("SELECT count(*) FROM waybill.deliveries WHERE status = 'COMPLETED'").await, CALLERS as i64);
    for (words, before) in verbs.into_iter().zip(before) {
        let runs = runs(&app, words).await - before;
        assert!((1..=MOST_STATEMENTS).contains(&runs), "{runs} statements: {words}");
    }
    app.stop().await;
}

/// Twenty events of the namespace 5: five each that wait, are held, have failed and are completed.
const SMALL: &str = "
    INSERT INTO waybill.namespaces (id, name) VALUES (5, 'small');
    CREATE TEMP TABLE small AS
        SELECT n * 50000 + 25000 AS id, now() - (1000000 - (n * 50000 + 25000)) * interval '1.7 seconds' AS created_at, n / 5 AS state
        FROM generate_series(0, 19) n;
    INSERT INTO waybill.events (namespace_id, id, created_at, title, tags, event_type, ordering_key, correlation_id)
        SELECT 5, id, created_at, 'a job', 'small,2-small', 'small', 'small', 'small' FROM small;
    INSERT INTO waybill.event_tags (namespace_id, tag, event_id) SELECT 5, '2-small', id FROM small;
    INSERT INTO waybill.deliveries (namespace_id, id, event_id, status, listed_status, priority, max_retries, lease_id, worker_id,
                                    ready_seq, lease_expires_at)
        SELECT 5, id, id, (ARRAY['PENDING', 'PROCESSING', 'FAILED', 'COMPLETED'])[state + 1]::waybill.status,
               CASE WHEN state = 2 THEN 'FAILED'::waybill.status END, 0, 3, id, 'small:1',
               CASE WHEN state = 0 THEN id END, CASE WHEN state = 1 THEN now() + interval '1 hour' END
        FROM small;
    INSERT INTO waybill.ready (namespace_id, seq, delivery_id, rank, queue)
        SELECT 5, id, id, 0, queue FROM small, (VALUES ('t:small'), ('t:2-small')) q(queue) WHERE state = 0;
    INSERT INTO waybill.lease_watch (namespace_id, look_at, delivery_ids)
        SELECT 5, now() + interval '1 hour', ARRAY[id] FROM small WHERE state = 1;
    INSERT INTO waybill.workers (namespace_id, worker_id, tags, first_seen_at, last_seen_at)
        VALUES (5, 'small:1', '{small}', now(), now());
";

/// The log of these events. Beside the large namespace, it is among the other's.
const SMALL_LOG: &str = "
    SELECT waybill.create_event_log_partition((now() - n * interval '1 week')::date) FROM generate_series(-1, 4) n;
    INSERT INTO waybill.event_log (namespace_id, created_at, event_id, lease_id, attempt, action, worker_id)
        SELECT 5, created_at + a.later, id, id, 1, a.action::waybill.action, 'small:1'
        FROM small, (VALUES ('1 s'::interval, 'PICKED'), ('3 s', 'COMPLETED')) a(later, action) ORDER BY id, a.later;
";

/// What a busy neighbour has in the tables that lists of workers and tags read.
const BUSY_NEIGHBOUR: &str = "
    INSERT INTO waybill.lease_watch (namespace_id, look_at, delivery_ids)
        SELECT 1, now() + interval '1 hour', ARRAY[n] FROM generate_series(1, 20000) n;
    INSERT INTO waybill.workers (namespace_id, worker_id, tags, first_seen_at, last_seen_at)
        SELECT 1, 'busy:' || n, '{many}', now(), now() FROM generate_series(1, 20000) n;
    ANALYZE waybill.lease_watch, waybill.workers;
";

/// The factor by which a neighbour may increase the cost: its rows make the indexes taller.
const MOST_GROWTH: f64 = 2.5;

/// Returns the buffers of the lists of a small namespace, by name.
async fn costs(app: &App) -> Vec<(String, i64)> {
    let scope = Scope::new(NamespaceId(5), None);
    let word = || Some("small".to_owned());
    let any = EventFilter::default;
    let status = |status: Status| EventFilter { status: Some(status), ..any() };
    let events = [
        ("all", any()),
        ("PENDING", status(Status::Pending)),
        ("PROCESSING", status(Status::Processing)),
        ("FAILED", status(Status::Failed)),
        ("COMPLETED", status(Status::Completed)),
        ("CANCELLED", status(Status::Cancelled)),
        ("tag", EventFilter { tags: vec!["small".into()], ..any() }),
        ("second tag", EventFilter { tags: vec!["2-small".into()], ..any() }),
        ("type", EventFilter { event_type: word(), ..any() }),
        ("correlation id", EventFilter { correlation_id: word(), ..any() }),
        ("ordering key", EventFilter { ordering_key: word(), ..any() }),
        ("worker", EventFilter { worker_id: Some("small:1".into()), ..any() }),
        ("tag of the neighbour", EventFilter { tags: vec!["many".into()], ..any() }),
    ];
    let logs = [
        ("all", LogFilter::default()),
        ("worker", LogFilter { worker_id: Some("small:1".into()), ..LogFilter::default() }),
        ("action", LogFilter { action: Some(Action::Failed), ..LogFilter::default() }),
    ];
    let mut costs = Vec::new();
    for descending in [false, true] {
        for (name, filter) in &events {
            let list =
                async |conn: &mut AsyncPgConnection| list_events(conn, &scope, filter, page(descending), 0).await;
            costs.push((format!("events, {name}, descending: {descending}"), app.buffers_of_repeated(list).await.1));
        }
        for (name, filter) in &logs {
            let list =
                async |conn: &mut AsyncPgConnection| list_log_entries(conn, &scope, filter, page(descending)).await;
            let (found, buffers) = app.buffers_of_repeated(list).await;
            assert_eq!(found.entries.len(), if *name == "action" { 0 } else { 20 }, "{name}");
            costs.push((format!("log, {name}, descending: {descending}"), buffers));
        }
    }
    costs.push(("workers".into(), explained(&app.url, "list_workers", "5, NULL, 300, NULL, false, 20").await));
    costs.push(("tags".into(), explained(&app.url, "list_tags", "5, NULL, NULL, false, 20, 1000").await));
    costs.push(("stats".into(), explained(&app.url, "read_stats", "5, NULL, 30, 10000, 1000").await));
    costs.push(("stats of a tag".into(), explained(&app.url, "read_tag", "5, NULL, 'small', 10000").await));
    costs
}

/// Returns the buffers of a statement, run twice on one connection.
async fn explained(url: &str, name: &str, values: &str) -> i64 {
    let source =
        std::fs::read_to_string(format!("{}/src/store/sql/{name}.sql", env!("CARGO_MANIFEST_DIR"))).expect(name);
    let mut conn = database::connection(url).await;
    let prepare = format!("PREPARE listed ({}) AS {}", parameter_types(&source), numbered(&source));
    conn.batch_execute(&format!("{SETUP}{prepare}")).await.expect(name);
    let mut cost = 0;
    for _ in 0..2 {
        #[derive(diesel::QueryableByName)]
        struct Plan {
            #[diesel(sql_type = diesel::sql_types::Json, column_name = "QUERY PLAN")]
            plan: Value,
        }
        let explain = format!("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE listed({values})");
        let plan: Plan = diesel::sql_query(explain).get_result(&mut conn).await.expect(name);
        cost = buffers(&plan.plan[0]["Plan"]) as i64;
    }
    cost
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_of_a_small_namespace_cost_what_they_would_alone_beside_a_million_events_of_another() {
    let alone = App::start_with(Options { fixed_clock: true, ..Options::default() }).await;
    let rules = "SELECT waybill.enforce_rules(false);";
    database::execute(&alone.url, &format!("{rules}{SMALL}{SMALL_LOG}")).await;
    database::execute(&alone.url, "VACUUM ANALYZE").await;
    let beside = app_with_a_million().await;
    database::execute(&beside.url, &format!("{SMALL}{BUSY_NEIGHBOUR}")).await;
    let mut too_much = Vec::new();
    for ((name, cost), (_, cost_alone)) in costs(&beside).await.into_iter().zip(costs(&alone).await) {
        println!("{name}: {cost} buffers, {cost_alone} alone");
        let most = (cost_alone as f64 * MOST_GROWTH) as i64 + 10;
        if cost > most {
            too_much.push(format!("{name}: {cost} buffers against {cost_alone} alone"));
        }
    }
    // The database is shared with other tests.
    database::execute(&beside.url, "DELETE FROM waybill.lease_watch; DELETE FROM waybill.workers; DELETE FROM waybill.ready WHERE namespace_id = 5").await;
    assert!(too_much.is_empty(), "{too_much:#?}");
}
