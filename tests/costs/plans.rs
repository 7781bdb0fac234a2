//! Plans must not depend on statistics: the hot tables swing between empty and full, and a plan
//! made for one is ruinous for the other. Each hot statement is planned in every state that the
//! tables can have, and with some statistics that no table has. The plan must always be the same: a
//! chain of look-ups by index or by row id.

use std::collections::BTreeSet;

use serde_json::Value;
use waybill::store::statement::{numbered, parameter_types};

use super::{Claimed, Lab, array, claim, claim_of_groups, complete, fan_out, hand_over, keyed, new_keys, publish};
use crate::support::database;

/// Returns all hot statements, as calls for two rows each.
fn calls() -> Vec<(&'static str, String)> {
    let two = [Claimed { claimed_id: Some(1), lease_id: Some(1) }, Claimed { claimed_id: Some(2), lease_id: Some(1) }];
    let nulls = array("NULL", 2);
    let no = array("false", 2);
    vec![
        ("publish", publish(2, "mail,sms")),
        ("fan_out", fan_out(2, "mail,sms")),
        ("hand_over", hand_over(2, "mail,sms")),
        ("keyed", keyed(2, "mail,sms")),
        ("new_keys", new_keys(2, "mail,sms")),
        ("claim", claim(2, "mail")),
        ("claim_of_groups", claim_of_groups(2, "mail")),
        ("complete", complete(&two)),
        ("load", "EXECUTE load('{1,1}', '{1,2}', NULL)".to_owned()),
        (
            "save",
            format!(
                "EXECUTE save(NULL, '{{1,1}}', '{{1,2}}', {}, {zeros}, {zeros}, {nulls}, {nulls}, {no}, {no}, {nulls}, {nulls}, \
                 {no}, {no}, {nulls}, {nulls}, {nulls}, {nulls}, {nulls}, {nulls}, {zeros}, {nulls}, NULL)",
                array("COMPLETED", 2),
                zeros = array("0", 2)
            ),
        ),
        ("give_up", format!("EXECUTE give_up(NULL, '{{1,1}}', '{{1,2}}', {}, {nulls})", array("expired", 2))),
        ("roll_up", "EXECUTE roll_up(NULL, '{1,1}', '{1,2}', '{-1,-1}', '{1,1}')".to_owned()),
        ("due", "EXECUTE due(NULL, 500, NULL)".to_owned()),
        ("expired", "EXECUTE expired(NULL, 500, NULL)".to_owned()),
        ("lost", "EXECUTE lost(NULL, '{1,1}', '{1,2}', 5)".to_owned()),
        ("busy_keys", "EXECUTE busy_keys(NULL, NULL, NULL, NULL, 0.5, 500, true)".to_owned()),
        ("watched", "EXECUTE watched(NULL, 100, NULL, 500, 0, false)".to_owned()),
    ]
}

/// Collects the table accesses in the order of the plan: how, by which index, on what condition.
fn accesses(node: &Value, found: &mut Vec<String>) {
    let kind = node["Node Type"].as_str().unwrap_or_default();
    if let Some(table) = node["Relation Name"].as_str() {
        let index = node["Index Name"].as_str().unwrap_or("-");
        let condition = node["Index Cond"].as_str().or(node["TID Cond"].as_str()).unwrap_or("-");
        found.push(format!("{kind} on {table} by {index}: {}", without_numbers(condition)));
    } else if kind.contains("Join") || kind == "Nested Loop" {
        found.push(kind.to_owned());
    }
    for child in node["Plans"].as_array().into_iter().flatten() {
        accesses(child, found);
    }
}

/// The planner numbers aliases and parameters differently from plan to plan.
fn without_numbers(condition: &str) -> String {
    condition.chars().filter(|letter| !letter.is_ascii_digit()).collect()
}

async fn plans(lab: &mut Lab) -> Vec<(&'static str, Vec<String>)> {
    // Planned again, as on a new connection.
    lab.prepare().await;
    let mut plans = Vec::new();
    for (name, call) in calls() {
        let mut found = Vec::new();
        accesses(&lab.plan(&call).await, &mut found);
        plans.push((name, found));
    }
    plans
}

const TABLES: [&str; 5] = ["events", "deliveries", "ready", "event_log", "lease_watch"];

async fn pretend_size(lab: &mut Lab, rows: f64, pages: i64) {
    for table in TABLES {
        lab.execute(&format!(
            "UPDATE pg_class SET reltuples = {rows}, relpages = {pages} \
             WHERE relnamespace = 'waybill'::regnamespace AND (relname = '{table}' OR relname LIKE '{table}%')"
        ))
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn plans_are_the_same_whatever_the_tables_hold_and_the_statistics_say() {
    let url = database::migrated().await;
    let mut lab = Lab::open(&url).await;
    let analyze = "ANALYZE waybill.events, waybill.deliveries, waybill.ready, waybill.event_log, waybill.lease_watch";

    let empty = plans(&mut lab).await;
    for (name, plan) in &empty {
        println!("{name}:\n  {}", plan.join("\n  "));
    }
    let mut others = Vec::new();
    lab.execute(analyze).await;
    others.push(("empty and analyzed", plans(&mut lab).await));
    for _ in 0..40 {
        lab.publish(500, "mail,sms").await;
    }
    others.push(("full, believed empty", plans(&mut lab).await));
    let held = lab.claim(400, "mail").await;
    lab.execute(analyze).await;
    others.push(("full, much of it held, and analyzed", plans(&mut lab).await));
    lab.execute(&complete(&held)).await;
    while !lab.claim(500, "mail").await.is_empty() {}
    others.push(("drained, believed full", plans(&mut lab).await));
    lab.execute(analyze).await;
    others.push(("drained and analyzed", plans(&mut lab).await));
    for (rows, pages) in [(0.0, 1), (1.0, 1), (1e9, 20_000_000), (1.0, 20_000_000), (1e9, 1)] {
        pretend_size(&mut lab, rows, pages).await;
        others.push(("imagined", plans(&mut lab).await));
    }
    for (state, plan) in others {
        assert_eq!(plan, empty, "{state}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn hot_statements_look_rows_up_and_never_scan() {
    let url = database::migrated().await;
    let mut lab = Lab::open(&url).await;
    let forbidden = ["Seq Scan", "Bitmap Heap Scan", "Hash Join", "Merge Join"];
    let mut conditions = BTreeSet::new();
    for (name, plan) in plans(&mut lab).await {
        for access in &plan {
            assert!(!forbidden.iter().any(|kind| access.starts_with(kind)), "{name}: {access}");
            // A look-up has a condition; writes and heads of queues by time do not.
            let is_scan = access.contains("Scan on");
            let has_condition = !access.ends_with(": -");
            assert!(!is_scan || has_condition, "{name}: {access}");
            if access.contains("by ready_pkey") {
                assert!(access.contains("queue ="), "{name}: {access}");
            }
            conditions.extend(is_scan.then(|| access.clone()));
        }
    }
    assert!(conditions.len() >= 6, "{conditions:?}");
}

/// The statements of all rules of retention, by the names of their files.
const RETENTION_RULES: [&str; 13] = [
    "delete_old_claim_requests",
    "delete_old_idempotency_keys",
    "delete_old_workers",
    "delete_old_dead_letters",
    "delete_old_operations",
    "delete_old_audit_entries",
    "delete_old_refused_settlements",
    "delete_old_endpoints",
    "delete_old_api_keys",
    "delete_old_key_secrets",
    "delete_old_stats_minutes",
    "delete_old_stats_hours",
    "delete_old_subscriptions",
];

/// Returns the plan of a rule, for 500 rows that are a day old.
async fn plan_of_rule(lab: &mut Lab, rule: &str) -> Vec<String> {
    let path = format!("{}/src/store/sql/{rule}.sql", env!("CARGO_MANIFEST_DIR"));
    let source = std::fs::read_to_string(path).expect("a file that is text");
    lab.execute(&format!("PREPARE {rule} ({}) AS {}", parameter_types(&source), numbered(&source))).await;
    let mut found = Vec::new();
    accesses(&lab.plan(&format!("EXECUTE {rule} (NULL, 86400, 500)")).await, &mut found);
    found
}

/// A rule finds old rows by an index of their age, and what refers to them by an index of that reference.
#[tokio::test(flavor = "multi_thread")]
async fn rules_of_retention_never_scan_a_table_or_the_deliveries_of_a_namespace() {
    let url = database::migrated().await;
    let mut lab = Lab::open(&url).await;
    for rule in RETENTION_RULES {
        let plan = plan_of_rule(&mut lab, rule).await;
        println!("{rule}:\n  {}", plan.join("\n  "));
        for access in plan.iter().filter(|access| access.contains("Scan on")) {
            assert!(!access.starts_with("Seq Scan") && !access.starts_with("Bitmap"), "{rule}: {access}");
            // Subscriptions are few, and have no index of their end.
            let is_few = access.contains("Scan on subscriptions ");
            assert!(is_few || !access.ends_with(": -"), "{rule}: {access}");
            if access.contains("Scan on deliveries ") {
                let is_lookup = access.contains("by deliveries_pkey: ") && access.contains("(id = ");
                assert!(is_lookup || access.contains("by deliveries_of_subscription: "), "{rule}: {access}");
            }
        }
    }
}
