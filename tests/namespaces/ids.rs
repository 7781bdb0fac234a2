//! Ids of another namespace: every route with an id answers as if there were none.

use serde_json::{Value, json};
use waybill::http::routes;

use crate::support::pages::add_rows;
use crate::support::records::app_that_sends_nothing;
use crate::support::{App, Reply};

/// An id that nobody has, with as many digits as the others.
const UNKNOWN: i64 = 987_654;

/// Returns the body with which a route accepts an id that it knows.
fn body(path: &str) -> Option<Value> {
    match path.rsplit_once('/').map_or(path, |(_, verb)| verb) {
        "complete" | "heartbeat" | "start" | "fail" | "release" => Some(json!({"worker_id": "w:0"})),
        "rotate-secret" if path.starts_with("/sources") => Some(json!({"secret": "x"})),
        "replay" | "rotate-secret" | "rotate" => Some(json!({})),
        "{id}" if path.starts_with("/keys") => Some(json!({"publishes_per_second": 5})),
        _ => None,
    }
}

async fn request(app: &App, method: &str, path: &str, body: Option<Value>) -> Reply {
    let method = reqwest::Method::from_bytes(method.as_bytes()).expect("a method");
    let request = app.client.request(method.clone(), format!("{}{path}", app.base));
    let request = match body.or_else(|| (method == "PATCH").then(|| json!({"name": "changed"}))) {
        Some(body) => request.json(&body),
        None => request,
    };
    Reply::of(request.send().await.expect("a response")).await
}

/// Returns a number that differs if a row of the namespace has changed.
async fn fingerprint(app: &App) -> Vec<i64> {
    let mut sums = Vec::new();
    let tables = [
        "events",
        "deliveries",
        "ready",
        "event_log",
        "subscriptions",
        "subscription_secrets",
        "sources",
        "source_secrets",
        "endpoints",
        "dead_letters",
        "operations",
        "namespaces",
        "event_types",
        "api_keys",
        "api_key_secrets",
    ];
    for table in tables {
        // The time when a key was used last is no change.
        let row = "(to_jsonb(t) - 'last_used_at')::text";
        let sum = format!("SELECT coalesce(sum(hashtext({row})::bigint), 0)::bigint FROM waybill.{table} t");
        sums.push(app.count(&sum).await);
    }
    sums
}

/// Hands a webhook to the inbox. There is no list of them.
async fn received_webhook(app: &App) -> i64 {
    let webhook = json!({"idempotency_key": "k", "event_type": "t"});
    app.post("/webhooks", &webhook).await.expect(202).json()["id"].as_i64().expect("an id")
}

#[tokio::test(flavor = "multi_thread")]
async fn an_id_of_another_namespace_is_like_one_that_does_not_exist_on_every_route_and_nothing_changes() {
    let app = app_that_sends_nothing().await.with_admin_key().await;
    let (north, south) = (app.team("north").await, app.team("south").await);
    // Ids that are nowhere else in a response.
    crate::support::database::execute(&app.url, "SELECT setval('waybill.ids', 123456)").await;
    add_rows(&north).await;
    // The operations of the fixture must have ended: they would change on their own.
    let running = "SELECT count(*) FROM waybill.operations WHERE status = 'RUNNING'";
    crate::support::until("the operations have ended", async || app.count(running).await == 0).await;
    let mut walked = 0;
    for endpoint in routes().iter().filter(|endpoint| endpoint.path.contains("{id}")) {
        let list = format!("/{}", endpoint.path.split('/').nth(1).expect("a noun"));
        let ids = match list.as_str() {
            "/webhooks" => vec![received_webhook(&north).await],
            list => north.walk_ids(list).await.concat(),
        };
        let before = fingerprint(&app).await;
        for id in ids.iter().copied() {
            for stranger in [&south, &app] {
                let answer = async |id: i64| {
                    let query = if endpoint.path.ends_with("/dead-letter") { "?reason=broken" } else { "" };
                    let path = format!("{}{query}", endpoint.path.replace("{id}", &id.to_string()));
                    let reply = request(stranger, endpoint.method.as_str(), &path, body(endpoint.path)).await;
                    (reply.status, reply.text.replace(&id.to_string(), "ID"))
                };
                let (status, text) = answer(id).await;
                assert_eq!(status, 404, "{} {}: {text}", endpoint.method, endpoint.path);
                assert_eq!((status, text), answer(UNKNOWN).await, "{} {}", endpoint.method, endpoint.path);
            }
        }
        assert!(!ids.is_empty(), "{}", endpoint.path);
        assert_eq!(fingerprint(&app).await, before, "{} {}", endpoint.method, endpoint.path);
        // The owner finds it.
        if endpoint.method == "GET" {
            north.get(&endpoint.path.replace("{id}", &ids[0].to_string())).await.expect(200);
        }
        walked += 1;
    }
    assert!(walked >= 20, "{walked} routes");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_name_of_an_event_type_of_another_namespace_is_like_one_that_is_not_declared() {
    let app = app_that_sends_nothing().await.with_admin_key().await;
    let (north, south) = (app.team("north").await, app.team("south").await);
    let (declared, unknown) = ("/event-types/north.known", "/event-types/other.known");
    north.put(declared, &json!({"description": "theirs"})).await.expect(201);
    let before = fingerprint(&app).await;
    let methods: Vec<String> = routes()
        .iter()
        .filter(|endpoint| endpoint.path == "/event-types/{name}" && endpoint.method != "PUT")
        .map(|endpoint| endpoint.method.to_string())
        .collect();
    assert_eq!(methods, ["GET", "DELETE"]);
    for (method, stranger) in methods.iter().flat_map(|method| [(method, &south), (method, &app)]) {
        let [of_theirs, of_nobody] = [declared, unknown].map(|path| request(stranger, method, path, None));
        let (of_theirs, of_nobody) = (of_theirs.await.expect(404).text, of_nobody.await.expect(404).text);
        assert_eq!(of_theirs.replace("north.known", "NAME"), of_nobody.replace("other.known", "NAME"), "{method}");
    }
    assert_eq!(fingerprint(&app).await, before);
    // The same name is another type in another namespace.
    south.put(declared, &json!({"description": "ours"})).await.expect(201);
    assert_eq!(north.get(declared).await.expect(200).json()["description"], "theirs");
    south.delete(declared).await.expect(204);
    north.get(declared).await.expect(200);
}
