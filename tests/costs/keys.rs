//! What API keys cost: no statement per request, and a look at the event for a completion only under a key that is
//! limited to tags.

use futures_util::future::join_all;
use serde_json::json;
use waybill::domain::api_key::ApiKey;

use super::{Lab, all_nodes, buffers, complete, complete_with};
use crate::support::wire::DatabaseProxy;
use crate::support::{App, Options, database};

/// Statements of the poll and of the listener run at any time; the others only for requests.
fn about_keys(proxy: &DatabaseProxy) -> usize {
    proxy.statements("load_keys") + proxy.statements("insert_api_key") + proxy.statements("record_key_use")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_with_a_known_key_costs_no_statement_of_its_own() {
    let proxy = DatabaseProxy::to(&database::migrated().await).await;
    let flags = vec!["--poll-interval-ms".into(), "60000".into()];
    let app = App::start_with(Options { url: Some(proxy.url()), flags, ..Options::default() }).await;
    let app = app.with_admin_key().await;
    let key = app.make_key(json!({"scopes": ["publish", "work"], "tag_patterns": ["a.*"]})).await;
    let holder = app.holding(&key);
    holder.publish_tagged("a.first").await;
    let (before, completions) = (about_keys(&proxy), proxy.statements("-- complete_deliveries"));
    for _ in 0..20 {
        let id = holder.publish_tagged("a.b").await;
        let claimed = holder.claim("a.b", "w:1").await.expect("an event");
        assert_eq!(claimed["id"], id);
        holder.complete(id, "w:1").await.expect(200);
    }
    assert_eq!(about_keys(&proxy), before);
    assert_eq!(proxy.statements("-- complete_deliveries"), completions + 20, "a limited key takes the fast path, too");
    assert_eq!(proxy.statements("-- load_deliveries"), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_completion_reads_the_event_only_under_a_limited_key_and_then_by_its_id() {
    let url = database::migrated().await;
    let mut lab = Lab::open(&url).await;
    lab.publish(5_000, "foreign").await;
    lab.publish(20, "a.b").await;
    let looks = |plan: &serde_json::Value| {
        let mut nodes = Vec::new();
        all_nodes(plan, &mut nodes);
        let of_events = nodes.iter().filter(|node| node["Relation Name"] == "events");
        of_events.map(|node| node["Actual Loops"].as_u64().unwrap_or(0)).sum::<u64>()
    };
    let claimed = lab.claim(10, "a.b").await;
    let unlimited = lab.explain(&complete(&claimed)).await;
    assert_eq!(looks(&unlimited), 0, "{unlimited:#}");
    let claimed = lab.claim(10, "a.b").await;
    let limited = lab.explain(&complete_with(&claimed, Some("\"mail,a.*\""))).await;
    assert_eq!(looks(&limited), 10, "{limited:#}");
    let extra = buffers(&limited).saturating_sub(buffers(&unlimited));
    assert!(extra <= 100, "{extra} buffers more for ten completions: {limited:#}");
    let completed = "SELECT count(*) FROM waybill.deliveries WHERE status = 'COMPLETED'";
    assert_eq!(database::count(&url, completed).await, 20);
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_keys_that_an_address_sends_at_once_cost_no_more_look_ups_than_its_budget() {
    let proxy = DatabaseProxy::to(&database::migrated().await).await;
    let flags = vec!["--poll-interval-ms".into(), "60000".into()];
    let app = App::start_with(Options { url: Some(proxy.url()), flags, ..Options::default() }).await;
    let app = app.with_admin_key().await;
    app.get("/keys").await.expect(200);
    let before = proxy.statements("load_keys");
    let guesses: Vec<App> =
        (0..100).map(|_| app.sending(ApiKey::generate().expect("random bytes").as_text())).collect();
    let replies = join_all(guesses.iter().map(|guess| guess.get("/events"))).await;
    let look_ups = proxy.statements("load_keys") - before;
    // Ten at once, five of the reserve, one more that was looked up beside the last, and one that the address and one that
    // the reserve may gain meanwhile.
    assert!((15..=18).contains(&look_ups), "{look_ups} look-ups");
    assert_eq!(replies.iter().filter(|reply| reply.status == 401).count(), look_ups);
}
