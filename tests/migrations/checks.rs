//! Rows that must not exist: one test for each named CHECK, and for each rule of events and deliveries.

use std::collections::BTreeSet;

use diesel::result::Error::DatabaseError;
use diesel_async::{RunQueryDsl, SimpleAsyncConnection};

use crate::support::database;

/// Returns the name of the constraint that a statement violates.
pub(super) async fn violated(url: &str, statement: &str) -> String {
    match database::connection(url).await.batch_execute(statement).await {
        Err(DatabaseError(_, information)) => information.constraint_name().unwrap_or_default().to_owned(),
        outcome => panic!("{statement}: {outcome:?}"),
    }
}

/// A delivery that waits to be claimed; each test then makes it invalid.
const DELIVERY: &str = "INSERT INTO waybill.deliveries (id, event_id, status, priority, max_retries, ready_seq) \
     VALUES (1, 1, 'PENDING', 0, 3, 1)";

async fn assert_refused(constraint: &str, statement: &str) {
    let url = database::migrated().await;
    database::execute(&url, DELIVERY).await;
    assert_eq!(violated(&url, statement).await, constraint);
}

macro_rules! refused {
    ($($constraint:ident: $statement:expr;)*) => {
        $(
            #[tokio::test(flavor = "multi_thread")]
            async fn $constraint() {
                assert_refused(stringify!($constraint), $statement).await;
            }
        )*

        const TESTED: &[&str] = &[$(stringify!($constraint)),*];
    };
}

refused! {
    namespaces_name_is_short:
        "INSERT INTO waybill.namespaces (id, name) VALUES (2, '')";
    events_have_tags_or_a_type:
        "INSERT INTO waybill.events (title, tags) VALUES ('t', '')";
    events_title_is_short:
        "INSERT INTO waybill.events (title, tags) VALUES (repeat('t', 256), 'a')";
    events_priority_in_range:
        "INSERT INTO waybill.events (title, tags, priority) VALUES ('t', 'a', 101)";
    events_max_retries_in_range:
        "INSERT INTO waybill.events (title, tags, max_retries) VALUES ('t', 'a', 0)";
    deliveries_own_row_has_the_events_id:
        "UPDATE waybill.deliveries SET subscription_id = 7";
    deliveries_lease_exactly_while_processing:
        "UPDATE waybill.deliveries SET lease_expires_at = now()";
    deliveries_processing_by_a_claim:
        "UPDATE waybill.deliveries SET status = 'PROCESSING', ready_seq = NULL, lease_expires_at = now(), lease_id = 1";
    deliveries_ready_only_while_pending_and_due:
        "UPDATE waybill.deliveries SET due_at = now()";
    deliveries_due_only_while_pending:
        "UPDATE waybill.deliveries SET status = 'COMPLETED', ready_seq = NULL, due_at = now()";
    deliveries_pending_is_ready_or_waits_for_something:
        "UPDATE waybill.deliveries SET ready_seq = NULL";
    deliveries_ordered_exactly_while_unfinished:
        "UPDATE waybill.deliveries SET ordering_key = 'k'";
    deliveries_expire_only_while_unfinished:
        "UPDATE waybill.deliveries SET status = 'COMPLETED', ready_seq = NULL, expires_at = now()";
    deliveries_retries_within_limit:
        "UPDATE waybill.deliveries SET retry_count = 4";
    deliveries_settlement_is_whole:
        "UPDATE waybill.deliveries SET settled_lease_id = 0";
    deliveries_settled_by_a_claim_that_was:
        "UPDATE waybill.deliveries SET settled_lease_id = 1, settled_action = 'FAILED'";
    deliveries_are_counted_on_own_rows:
        "INSERT INTO waybill.deliveries (id, event_id, subscription_id, status, priority, max_retries, open_deliveries, \
         failed_deliveries) VALUES (2, 1, 7, 'PENDING', 0, 3, 1, 0)";
    deliveries_counts_are_whole:
        "UPDATE waybill.deliveries SET open_deliveries = 1";
    deliveries_rolled_up_while_open:
        "UPDATE waybill.deliveries SET open_deliveries = 0, failed_deliveries = 0";
    deliveries_replay_a_push:
        "UPDATE waybill.deliveries SET replay_of = 1";
    deliveries_are_listed_by_their_status:
        "UPDATE waybill.deliveries SET status = 'FAILED', ready_seq = NULL";
    stats_minutes_latencies_pair_up:
        "INSERT INTO waybill.stats_minutes (namespace_id, tag, minute, server, revision, published, claimed, completed, failed, retried, \
         released, reset, expired, pushes_succeeded, pushes_failed, dead_lettered, latency_buckets, latency_counts) \
         VALUES (1, '', now(), 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, '{1}', '{}')";
    stats_hours_latencies_pair_up:
        "INSERT INTO waybill.stats_hours (namespace_id, tag, hour, server, revision, published, claimed, completed, failed, retried, \
         released, reset, expired, pushes_succeeded, pushes_failed, dead_lettered, latency_buckets, latency_counts) \
         VALUES (1, '', now(), 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, '{1}', '{}')";
    subscriptions_url_is_short:
        "INSERT INTO waybill.subscriptions (url, spec) VALUES ('', '{}')";
    subscriptions_version_counts:
        "INSERT INTO waybill.subscriptions (url, spec, version) VALUES ('http://a', '{}', 0)";
    subscriptions_deleted_are_not_active:
        "INSERT INTO waybill.subscriptions (url, spec, deleted_at) VALUES ('http://a', '{}', now())";
    subscriptions_reason_only_while_inactive:
        "INSERT INTO waybill.subscriptions (url, spec, inactive_reason) VALUES ('http://a', '{}', 'gone')";
    endpoints_open_ones_are_paused:
        "INSERT INTO waybill.endpoints (url, opened_at) VALUES ('http://a', now())";
    event_types_name_is_short:
        "INSERT INTO waybill.event_types (namespace_id, name, examples, created_at, updated_at) VALUES (1, '', '[]', now(), \
         now())";
    event_types_schema_has_a_digest:
        "INSERT INTO waybill.event_types (namespace_id, name, schema, examples, created_at, updated_at) VALUES (1, 'a', '{}', \
         '[]', now(), now())";
    event_types_versions_count:
        "INSERT INTO waybill.event_types (namespace_id, name, version, examples, created_at, updated_at) VALUES (1, 'a', 2, \
         '[]', now(), now())";
    filter_overruns_count_events:
        "INSERT INTO waybill.filter_overruns (subscription_id, events, last_at, last_event_id) VALUES (1, 0, now(), 1)";
    dead_letters_reason_is_known:
        "INSERT INTO waybill.dead_letters (delivery_id, event_id, subscription_id, subscription_version, reason, event, \
         subscription, attempts, created_at) VALUES (1, 1, 1, 1, 'boredom', '{}', '{}', '[]', now())";
    dead_letters_replay_config_is_known:
        "INSERT INTO waybill.dead_letters (delivery_id, event_id, subscription_id, subscription_version, reason, event, \
         subscription, attempts, created_at, replayed_at, replay_config) \
         VALUES (1, 1, 1, 1, 'manual', '{}', '{}', '[]', now(), now(), 'guessed')";
    dead_letters_replay_is_whole:
        "INSERT INTO waybill.dead_letters (delivery_id, event_id, subscription_id, subscription_version, reason, event, \
         subscription, attempts, created_at, replayed_at) VALUES (1, 1, 1, 1, 'manual', '{}', '{}', '[]', now(), now())";
    operations_kind_is_known:
        "INSERT INTO waybill.operations (kind, filter, per_second, matched, matched_is_exact, until_id, next_at, created_at) \
         VALUES ('eat_events', '{}', 1, 0, true, 0, now(), now())";
    operations_status_is_known:
        "INSERT INTO waybill.operations (kind, filter, per_second, matched, matched_is_exact, until_id, next_at, created_at, status, finished_at) \
         VALUES ('retry_events', '{}', 1, 0, true, 0, now(), now(), 'LOST', now())";
    operations_config_is_known:
        "INSERT INTO waybill.operations (kind, filter, per_second, matched, matched_is_exact, until_id, next_at, created_at, config) \
         VALUES ('replay_dead_letters', '{}', 1, 0, true, 0, now(), now(), 'guessed')";
    operations_config_is_of_replays:
        "INSERT INTO waybill.operations (kind, filter, per_second, matched, matched_is_exact, until_id, next_at, created_at, config) \
         VALUES ('retry_events', '{}', 1, 0, true, 0, now(), now(), 'current')";
    operations_rate_is_positive:
        "INSERT INTO waybill.operations (kind, filter, per_second, matched, matched_is_exact, until_id, next_at, created_at) \
         VALUES ('retry_events', '{}', 0, 0, true, 0, now(), now())";
    operations_counts_are_not_negative:
        "INSERT INTO waybill.operations (kind, filter, per_second, matched, matched_is_exact, until_id, next_at, created_at, done) \
         VALUES ('retry_events', '{}', 1, 0, true, 0, now(), now(), -1)";
    operations_part_is_whole:
        "INSERT INTO waybill.operations (kind, filter, per_second, matched, matched_is_exact, until_id, next_at, created_at, part_of) \
         VALUES ('retry_events', '{}', 1, 0, true, 0, now(), now(), 1)";
    operations_finished_exactly_when_over:
        "INSERT INTO waybill.operations (kind, filter, per_second, matched, matched_is_exact, until_id, next_at, created_at, finished_at) \
         VALUES ('retry_events', '{}', 1, 0, true, 0, now(), now(), now())";
    refused_settlements_are_counted:
        "INSERT INTO waybill.refused_settlements (event_id, lease_id, action, code, worker_id, calls, first_at, last_at) \
         VALUES (1, 1, 'complete', 'lease_lost', 'w', 0, now(), now())";
    audit_log_subject_is_whole:
        "INSERT INTO waybill.audit_log (created_at, action, subject_id, detail) VALUES (now(), 'key.created', 1, '{}')";
    histories_epoch_is_short: "UPDATE waybill.histories SET epoch = '12345678'";
    histories_reason_is_known: "UPDATE waybill.histories SET reason = 'boredom'";
    api_keys_name_is_short:
        "INSERT INTO waybill.api_keys (name, scopes, created_at) VALUES ('', '{read}', now())";
    api_keys_scopes_are_some:
        "INSERT INTO waybill.api_keys (name, scopes, created_at) VALUES ('k', '{}', now())";
    api_keys_patterns_are_some:
        "INSERT INTO waybill.api_keys (name, scopes, tag_patterns, created_at) VALUES ('k', '{read}', '{}', now())";
    api_key_secrets_hash_is_sha_256:
        "INSERT INTO waybill.api_key_secrets (hash, namespace_id, key_id, prefix, created_at) VALUES ('x', 1, 1, '', now())";
    key_catalog_has_one_row: "INSERT INTO waybill.key_catalog (is_only_row, generation) VALUES (false, 1)";
    sources_version_counts:
        "INSERT INTO waybill.sources (token_hash, token, spec, version) VALUES (sha256('t'), 't', '{}', 0)";
    sources_hash_is_sha_256:
        "INSERT INTO waybill.sources (token_hash, token, spec) VALUES ('x', 't', '{}')";
    sources_refusals_have_a_time:
        "INSERT INTO waybill.sources (token_hash, token, spec, refused) VALUES (sha256('t'), 't', '{}', 1)";
    source_catalog_is_one_row: "INSERT INTO waybill.source_catalog (is_only_row, generation) VALUES (false, 1)";
    claim_requests_pair_up:
        "INSERT INTO waybill.claim_requests (worker_id, idempotency_key, delivery_ids, claimed_at) \
         VALUES ('w:1', 'r', '{1}', now())";
}

/// The opposite of the constraint above: held work without a lease.
#[tokio::test(flavor = "multi_thread")]
async fn processing_without_a_lease_is_refused_too() {
    let processing =
        "UPDATE waybill.deliveries SET status = 'PROCESSING', ready_seq = NULL, worker_id = 'w:1', lease_id = 1";
    assert_refused("deliveries_lease_exactly_while_processing", processing).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_check_and_every_rule_has_a_test() {
    #[derive(diesel::QueryableByName)]
    struct Row {
        #[diesel(sql_type = diesel::sql_types::Text)]
        name: String,
    }
    let url = database::migrated().await;
    let named = "SELECT conname::text AS name FROM pg_constraint \
                 WHERE contype = 'c' AND connamespace = 'waybill'::regnamespace \
                 UNION \
                 SELECT (regexp_matches(prosrc, 'THEN ''(\\w+)''', 'g'))[1] FROM pg_proc \
                 WHERE pronamespace = 'waybill'::regnamespace AND proname LIKE 'rule\\_broken\\_by\\_%'";
    let rows: Vec<Row> = diesel::sql_query(named).load(&mut database::connection(&url).await).await.expect("rows");
    let named: BTreeSet<&str> = rows.iter().map(|row| row.name.as_str()).collect();
    assert_eq!(named, TESTED.iter().copied().collect());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_status_or_action_cannot_be_stored() {
    let url = database::migrated().await;
    database::execute(&url, DELIVERY).await;
    for statement in [
        "UPDATE waybill.deliveries SET status = 'LOST'",
        "INSERT INTO waybill.event_log (event_id, action, lease_id, attempt) VALUES (1, 'EATEN', 1, 1)",
    ] {
        let refused = database::connection(&url).await.batch_execute(statement).await.expect_err(statement);
        assert!(refused.to_string().contains("invalid input value for enum"), "{refused}");
    }
}

/// In production nothing refuses such a row, and the query finds it.
#[tokio::test(flavor = "multi_thread")]
async fn operators_can_look_for_rows_that_break_a_rule() {
    let url = database::migrated().await;
    database::execute(&url, "SELECT waybill.enforce_rules(false)").await;
    database::execute(&url, DELIVERY).await;
    let broken = "SELECT count(*) FROM waybill.find_broken_rules()";
    assert_eq!(database::count(&url, broken).await, 0);
    database::execute(&url, "UPDATE waybill.deliveries SET due_at = now()").await;
    database::execute(&url, "INSERT INTO waybill.events (title, tags) VALUES ('t', '')").await;
    assert_eq!(database::count(&url, broken).await, 2);
    let which = "SELECT count(*) FROM waybill.find_broken_rules() WHERE (table_name, id, rule) \
                 = ('deliveries', 1, 'deliveries_ready_only_while_pending_and_due')";
    assert_eq!(database::count(&url, which).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_are_not_enforced_unless_somebody_asks_for_it() {
    let url = database::empty().await;
    waybill::store::connection::migrate::migrate(&url).await.expect("up");
    let triggers = "SELECT count(*) FROM pg_trigger WHERE NOT tgisinternal";
    assert_eq!(database::count(&url, triggers).await, 0);
    database::execute(&url, "SELECT waybill.enforce_rules(true); SELECT waybill.enforce_rules(true)").await;
    assert_eq!(database::count(&url, triggers).await, 3);
    database::execute(&url, "SELECT waybill.enforce_rules(false); SELECT waybill.enforce_rules(false)").await;
    assert_eq!(database::count(&url, triggers).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_that_start_together_can_all_ask_for_the_rules() {
    let url = database::migrated().await;
    database::execute(&url, "SELECT waybill.enforce_rules(false)").await;
    let mut servers = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let url = url.clone();
        servers.spawn(async move { database::execute(&url, "SELECT waybill.enforce_rules(true)").await });
    }
    servers.join_all().await;
}
