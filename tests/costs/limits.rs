//! What limits cost: no statement per publish, whether it is accepted or refused.

use serde_json::json;
use waybill::background::limit_refresher;

use crate::support::wire::DatabaseProxy;
use crate::support::{App, Options, database};

const PUBLISHES: usize = 20;

/// Returns the numbers of statements that publishing costs: those that store, and those about limits.
async fn statements_of(app: &App, proxy: &DatabaseProxy, status: u16) -> (usize, usize) {
    const ABOUT_LIMITS: [&str; 7] = [
        "load_limits",
        "note_server",
        "count_waiting",
        "measure_payloads",
        "load_catalogs",
        "load_generation",
        "load_keys",
    ];
    let about_limits = || ABOUT_LIMITS.iter().map(|name| proxy.statements(name)).sum::<usize>();
    let stored = || proxy.statements("-- publish_events") + proxy.statements("-- publish_and_fan_out");
    let before = (stored(), about_limits());
    for _ in 0..PUBLISHES {
        app.post("/events", &json!({"title": "a job", "tags": "a", "payload": {"id": 1}})).await.expect(status);
    }
    (stored() - before.0, about_limits() - before.1)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_publish_costs_one_statement_with_limits_and_none_if_it_is_refused() {
    let proxy = DatabaseProxy::to(&database::migrated().await).await;
    let flags = vec!["--poll-interval-ms".into(), "60000".into(), "--dispatch=false".into()];
    // With a fixed clock, the counts are renewed by hand.
    let app =
        App::start_with(Options { url: Some(proxy.url()), flags, fixed_clock: true }).await.with_admin_key().await;
    let key = json!({"scopes": ["publish"], "publishes_per_second": 1000});
    let holder = app.holding(&app.make_key(key).await);
    holder.publish_tagged("a").await;
    assert_eq!(statements_of(&holder, &proxy, 201).await, (PUBLISHES, 0), "a limited key");
    let limits = json!({"publishes_per_second": 1000, "waiting_events": 100, "stored_bytes": 10_000});
    app.patch("/namespaces/default", &json!({"settings": {"limits": limits}})).await.expect(200);
    limit_refresher::run_once(app.engine()).await.expect("a round");
    assert_eq!(statements_of(&holder, &proxy, 201).await, (PUBLISHES, 0), "and a limited namespace");
    let limits = json!({"waiting_events": 1});
    app.patch("/namespaces/default", &json!({"settings": {"limits": limits}})).await.expect(200);
    limit_refresher::run_once(app.engine()).await.expect("a round");
    assert_eq!(statements_of(&holder, &proxy, 429).await, (0, 0), "nothing is stored or read for a refused publish");
}
