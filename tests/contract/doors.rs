//! The table of doors: every route, with every kind of key. A request that is refused changes nothing.

use diesel_async::RunQueryDsl;
use serde_json::json;
use waybill::domain::api_key::{KeyScope, KeyScopes};
use waybill::http::doors::Door;

use super::document::{Document, Operation};
use crate::support::{App, Options, Reply, database};

#[test]
fn the_document_names_the_scope_that_each_route_needs() {
    let document = Document::load();
    for endpoint in waybill::http::routes() {
        let operation = Operation { method: endpoint.method.to_string(), path: endpoint.path.to_owned() };
        let expected = match endpoint.door.scope() {
            Some(scope) => json!([{"api_key": [scope.as_str()]}]),
            None => json!([]),
        };
        assert_eq!(document.at(&operation.pointer())["security"], expected, "{operation:?}");
    }
    let scopes = KeyScope::ALL.map(KeyScope::as_str);
    assert_eq!(document.strings("/components/schemas/KeyScope/enum"), scopes);
    assert_eq!(document.keys("/components/schemas/KeyScope/x-enumDescriptions").len(), scopes.len());
}

/// Written down once more, because a door that opens too far by mistake must not pass unnoticed.
#[test]
fn nothing_but_documents_and_probes_is_open() {
    let open = waybill::http::routes().into_iter().filter(|endpoint| endpoint.door == Door::Open);
    let open: Vec<&str> = open.map(|endpoint| endpoint.path).collect();
    let expected = [
        // Its senders have no key: the scheme of the source says how they prove themselves.
        "/in/{token}",
        "/health",
        "/ready",
        "/problems/{code}",
        "/openapi.yaml",
        "/openapi.json",
        "/docs",
        "/docs/scalar.js",
    ];
    assert_eq!(open, expected);
    for endpoint in waybill::http::routes() {
        let is_about_the_server =
            ["/keys", "/namespaces", "/audit", "/doctor"].iter().any(|path| endpoint.path.starts_with(path));
        assert_eq!(endpoint.door == Door::Admin, is_about_the_server, "{}", endpoint.path);
        if endpoint.method != "GET" && endpoint.path != "/in/{token}" {
            assert!(![Door::Open, Door::Read, Door::Metrics].contains(&endpoint.door), "{}", endpoint.path);
        }
    }
}

/// A server with rows that requests can be about, and callers with keys of every kind.
struct House {
    app: App,
    document: Document,
    /// The id that the rows of most tables have.
    id: i64,
    key_id: i64,
    source: serde_json::Value,
}

impl House {
    async fn build() -> Self {
        let flags = vec!["--dispatch=false".into()];
        let app = App::start_with(Options { fixed_clock: true, flags, ..Options::default() }).await;
        let app = app.with_admin_key().await;
        let spare = app.make_key(json!({"name": "spare", "scopes": ["read"]})).await;
        let id = app.publish_tagged("nobody").await;
        app.subscribe("http://127.0.0.1:9/hook", json!({"event_types": ["order.*"]})).await;
        let pushed = app.publish(json!({"event_type": "order.paid", "payload": 1})).await;
        let delivery = app.only_delivery(pushed).await;
        app.post_empty(&format!("/deliveries/{delivery}/dead-letter?reason=broken")).await.expect(200);
        let source = app.source(json!({"verify": {"scheme": "none"}})).await;
        House { app, document: Document::load(), id, key_id: spare.id, source }
    }

    /// Sends a request that the document describes, as the holder of a key.
    async fn send(&self, caller: &App, operation: &Operation) -> Reply {
        let id = if operation.path.starts_with("/keys") { self.key_id } else { self.id };
        let path = match operation.is_foreign() {
            true => self.source["path"].as_str().expect("a path").to_owned(),
            false => operation.with_id(id),
        };
        let url = format!("{}{path}{}", self.app.base, operation.required_query());
        let request = caller.client.request(operation.method.parse().expect("a method"), url);
        let request = match self.document.request_example(operation) {
            Some(body) => request.json(body),
            None => request,
        };
        Reply::of(request.send().await.expect("a response")).await
    }

    /// Returns what is in the database: a hash of each table. The time when a key was used last is no change, nor is a note
    /// about a settlement that was refused because of its claim.
    async fn contents(&self) -> Vec<(String, String)> {
        #[derive(diesel::QueryableByName)]
        struct Table {
            #[diesel(sql_type = diesel::sql_types::Text)]
            name: String,
            #[diesel(sql_type = diesel::sql_types::Text)]
            hash: String,
        }
        let mut conn = database::connection(&self.app.url).await;
        let hash = "SELECT relname::text AS name, (xpath('/row/h/text()', query_to_xml(format( \
                'SELECT md5(string_agg((to_jsonb(t) - ''last_used_at'')::text, '','' ORDER BY to_jsonb(t)::text)) AS h \
                 FROM waybill.%I t', relname), true, true, '')))[1]::text AS hash \
             FROM pg_class WHERE relnamespace = 'waybill'::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition \
               AND relname NOT IN ('workers', 'refused_settlements') ORDER BY relname";
        let hash = format!("SELECT name, coalesce(hash, '') AS hash FROM ({hash}) t");
        let tables: Vec<Table> = diesel::sql_query(hash).load(&mut conn).await.expect("the tables");
        assert!(tables.len() > 15, "only {} tables", tables.len());
        tables.into_iter().map(|table| (table.name, table.hash)).collect()
    }
}

/// Callers with keys of every kind.
struct Callers {
    /// Those without a key that is good, with the refusal that each gets.
    without_valid_key: [(App, u16, &'static str); 4],
    /// The holders of a key with one scope.
    holders: Vec<(KeyScope, App)>,
}

impl Callers {
    async fn of(house: &House) -> Self {
        let app = &house.app;
        let expired =
            app.make_key(json!({"scopes": ["admin"], "expires_at": app.now() + chrono::TimeDelta::seconds(1)})).await;
        let revoked = app.make_key(json!({"scopes": ["admin"]})).await;
        app.post_empty(&format!("/keys/{}/revoke", revoked.id)).await.expect(200);
        app.advance(1);
        let mut holders = Vec::new();
        for scope in KeyScope::ALL {
            holders.push((scope, app.holder_of(scope.as_str()).await));
        }
        let without_valid_key = [
            (app.as_stranger(), 401, "unauthenticated"),
            (app.sending("wb_garbage"), 401, "unauthenticated"),
            (app.holding(&expired), 401, "key_expired"),
            (app.holding(&revoked), 401, "key_revoked"),
        ];
        Callers { without_valid_key, holders }
    }

    /// Returns the holders who may do what needs a scope, or those who may not.
    fn who(&self, may: bool, needed: KeyScope) -> impl Iterator<Item = &(KeyScope, App)> {
        self.holders.iter().filter(move |(scope, _)| KeyScopes::of([*scope]).allow(needed) == may)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_route_is_behind_its_door() {
    let house = House::build().await;
    let callers = Callers::of(&house).await;
    for endpoint in waybill::http::routes() {
        let operation = Operation { method: endpoint.method.to_string(), path: endpoint.path.to_owned() };
        let Some(needed) = endpoint.door.scope() else {
            for (caller, ..) in &callers.without_valid_key {
                assert!(house.send(caller, &operation).await.status < 400, "{operation:?}");
            }
            continue;
        };
        let before = house.contents().await;
        for (caller, status, code) in &callers.without_valid_key {
            house.send(caller, &operation).await.problem(*status, code);
        }
        for (_, holder) in callers.who(false, needed) {
            let problem = house.send(holder, &operation).await.problem(403, "scope_missing");
            assert_eq!(problem["scope"], needed.as_str(), "{operation:?}");
        }
        assert_eq!(house.contents().await, before, "{operation:?} was refused and has changed something");
        for (scope, holder) in callers.who(true, needed) {
            let reply = house.send(holder, &operation).await;
            assert!(![401, 403].contains(&reply.status), "{operation:?} with {scope}: {reply:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_page_is_behind_its_door() {
    let house = House::build().await;
    let callers = Callers::of(&house).await;
    let (open, guarded): (Vec<_>, Vec<_>) =
        waybill::http::pages().into_iter().partition(|endpoint| endpoint.door == Door::Open);
    let open: Vec<String> = open.iter().map(|endpoint| format!("{} {}", endpoint.method, endpoint.path)).collect();
    assert_eq!(open, ["GET /login", "POST /login", "POST /logout", "GET /assets/{name}"]);
    let before = house.contents().await;
    for endpoint in guarded {
        assert_eq!(endpoint.method, "GET", "{}: a page changes nothing", endpoint.path);
        let needed = endpoint.door.scope().expect("a scope");
        let id = if endpoint.path.starts_with("/ui/keys") { house.key_id } else { house.id };
        let path = endpoint.path.replace("{id}", &id.to_string()).replace("{name}", "default");
        for (caller, ..) in &callers.without_valid_key {
            let reply = caller.get(&path).await.expect(303);
            assert!(reply.header("location").is_some_and(|to| to.starts_with("/login")), "{path}: {reply:?}");
        }
        for (scope, holder) in callers.who(false, needed) {
            let reply = holder.get(&path).await;
            assert_eq!(reply.status, 403, "{path} with {scope}: {reply:?}");
            assert!(reply.text.contains(&format!("<code>{needed}</code>")), "{path} with {scope}: {reply:?}");
        }
        for (scope, holder) in callers.who(true, needed) {
            let reply = holder.get(&path).await;
            assert!([200, 404].contains(&reply.status), "{path} with {scope}: {reply:?}");
        }
    }
    assert_eq!(house.contents().await, before, "pages have changed something");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_a_route_needs_no_key() {
    let stranger = App::with_keys().await.as_stranger();
    stranger.get("/nowhere").await.problem(404, "route_not_found");
    stranger.delete("/events").await.problem(405, "method_not_allowed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_is_refused_before_its_body_is_read() {
    let app = App::with_keys().await;
    app.as_stranger().post_text("/events", "{").await.problem(401, "unauthenticated");
    app.holder_of("read").await.post_text("/events", "{").await.problem(403, "scope_missing");
}
