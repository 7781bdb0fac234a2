//! What event types cost: no statement per publish, whether a namespace declares types or not, and a list that reads no
//! more than its page.

use serde_json::json;

use waybill::store::statement::{numbered, parameter_types};

use super::{Lab, buffers};
use crate::support::wire::DatabaseProxy;
use crate::support::{App, Options, database};

const PUBLISHES: usize = 20;

/// Returns the number of statements that publishing costs, apart from those of the poll and of the listener.
async fn statements_of(app: &App, proxy: &DatabaseProxy) -> (usize, usize) {
    let about_types =
        || ["load_catalogs", "load_generation", "event_types"].iter().map(|name| proxy.statements(name)).sum::<usize>();
    let stored = || proxy.statements("-- publish_events") + proxy.statements("-- publish_and_fan_out");
    let before = (stored(), about_types());
    for n in 0..PUBLISHES {
        app.publish(json!({"event_type": "order.paid", "payload": {"id": n}})).await;
    }
    (stored() - before.0, about_types() - before.1)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_publish_costs_one_statement_with_and_without_declared_types() {
    let proxy = DatabaseProxy::to(&database::migrated().await).await;
    let flags = vec!["--poll-interval-ms".into(), "60000".into(), "--dispatch=false".into()];
    let app = App::start_with(Options { url: Some(proxy.url()), flags, ..Options::default() }).await;
    let order = json!({"event_type": "order.paid", "payload": {"id": 1}});
    app.publish(order.clone()).await;
    assert_eq!(statements_of(&app, &proxy).await, (PUBLISHES, 0), "nothing is declared");
    let schema = json!({"type": "object", "required": ["id"], "properties": {"id": {"type": "integer"}}});
    app.put("/event-types/order.paid", &json!({"schema": schema})).await.expect(201);
    assert_eq!(statements_of(&app, &proxy).await, (PUBLISHES, 0), "the schema was compiled when it was declared");
    app.patch("/namespaces/default", &json!({"settings": {"strict_event_types": true}})).await.expect(200);
    assert_eq!(statements_of(&app, &proxy).await, (PUBLISHES, 0), "strict");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_loads_a_schema_once() {
    let url = database::migrated().await;
    let declaring = App::start_with(Options { url: Some(url.clone()), ..Options::default() }).await;
    declaring.put("/event-types/order.paid", &json!({"schema": {"required": ["id"]}})).await.expect(201);
    let proxy = DatabaseProxy::to(&url).await;
    let flags = vec!["--poll-interval-ms".into(), "60000".into(), "--dispatch=false".into()];
    let app = App::start_with(Options { url: Some(proxy.url()), flags, ..Options::default() }).await;
    app.publish(json!({"event_type": "order.paid", "payload": {"id": 1}})).await;
    assert_eq!(statements_of(&app, &proxy).await, (PUBLISHES, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_types_costs_the_same_however_many_events_there_are() {
    let url = database::migrated().await;
    let mut lab = Lab::open(&url).await;
    let source = include_str!("../../src/store/sql/list_event_types.sql");
    lab.execute(&format!("PREPARE list_types ({}) AS {}", parameter_types(source), numbered(source))).await;
    lab.execute("SELECT waybill.enforce_rules(false)").await;
    let mut costs = Vec::new();
    for events in [60_000, 120_000] {
        lab.execute(&format!(
            "INSERT INTO waybill.events (title, tags, event_type) SELECT 'n', '', 'type' || n % 50 FROM generate_series(1, {events}) n"
        ))
        .await;
        lab.execute("VACUUM ANALYZE waybill.events").await;
        let mut of_orders = Vec::new();
        for descending in [false, true] {
            let plan =
                lab.explain(&format!("EXECUTE list_types(1, NULL, NULL, {descending}, 10, 1000, 'waybill.')")).await;
            of_orders.push(buffers(&plan));
        }
        costs.push(of_orders);
    }
    for (few, many) in costs[0].iter().zip(&costs[1]) {
        assert!(*many <= few * 3 / 2 && *many < 2_000, "{costs:?} buffers");
    }
}
