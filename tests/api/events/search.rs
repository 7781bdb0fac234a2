//! `GET /events` and bulk operations with filters that search: text, labels, payloads, and what is excluded.

use reqwest::Url;
use serde_json::{Value, json};

use crate::support::{App, Options};

/// Returns one page of events with these parameters.
async fn page(app: &App, parameters: &[(&str, &str)]) -> Value {
    let url = Url::parse_with_params("http://any/events", parameters).expect("a URL");
    app.get(&format!("/events?{}", url.query().unwrap_or_default())).await.expect(200).json()
}

async fn found(app: &App, parameters: &[(&str, &str)]) -> Vec<i64> {
    ids(&page(app, parameters).await)
}

fn ids(page: &Value) -> Vec<i64> {
    page["events"].as_array().expect("events").iter().map(|event| event["id"].as_i64().expect("an id")).collect()
}

/// Asserts that `name=value` finds `wanted`, and that `not.name=value` finds all others of `all`.
async fn finds(app: &App, all: &[i64], name: &str, value: &str, wanted: &[i64]) {
    assert_eq!(found(app, &[(name, value)]).await, wanted, "{name}={value}");
    let others: Vec<i64> = all.iter().copied().filter(|id| !wanted.contains(id)).collect();
    assert_eq!(found(app, &[(&format!("not.{name}"), value)]).await, others, "not.{name}={value}");
}

/// Publishes a payload as it is. The response has no payload, which not every reader of JSON could read.
async fn publish_text(app: &App, payload: &str) -> i64 {
    let events = format!("{{\"events\": [{{\"title\": \"x\", \"tags\": \"a\", \"payload\": {payload}}}]}}");
    ids(&app.post_text("/events/batch", &events).await.expect(201).json())[0]
}

/// Publishes an event that fails for good with this error.
async fn publish_failed(app: &App, event: Value, error: &str) -> i64 {
    let id = app.publish(event).await;
    app.claim("f", "host:1").await.expect("an event");
    let failure = json!({"worker_id": "host:1", "retryable": false, "error_message": error});
    app.post(&format!("/events/{id}/fail"), &failure).await.expect(400);
    id
}

#[tokio::test(flavor = "multi_thread")]
async fn text_is_found_in_titles_and_errors_in_any_case_and_is_no_pattern() {
    let app = App::start().await;
    let plain = app.publish(json!({"title": "Charge CARD of order 17", "tags": "a"})).await;
    let odd = app.publish(json!({"title": r"100%_.*[a](?i)\d ÄRGER Straße", "tags": "a"})).await;
    let failed = publish_failed(&app, json!({"title": "job", "tags": "f"}), "the card was\ndeclined (ärger)").await;
    let all = [plain, odd, failed];
    for (text, wanted) in [
        ("card", vec![plain, failed]),
        ("Declined", vec![failed]),
        ("was\ndecl", vec![failed]),
        ("ärGER", vec![odd, failed]),
        ("straße", vec![odd]),
        ("%", vec![odd]),
        ("_", vec![odd]),
        (".*", vec![odd]),
        ("[A]", vec![odd]),
        ("(?I)\\D", vec![odd]),
        (".", vec![odd]),
        ("^charge", vec![]),
        ("card order", vec![]),
        ("'; --", vec![]),
    ] {
        finds(&app, &all, "text", text, &wanted).await;
    }
    let longest = "([{*+?^$\\|.)]}ß漢😀ÄäΣ".repeat(20).chars().take(200).collect::<String>();
    assert_eq!(found(&app, &[("text", &longest)]).await, [0; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn labels_are_compared_as_a_whole() {
    let app = App::start().await;
    let job = |labels: Value| json!({"title": "x", "tags": "a", "labels": labels});
    let core = app.publish(job(json!({"team": "core", "a.b": "1", "odd": "\u{1}é\"\\"}))).await;
    let web = app.publish(job(json!({"team": "web"}))).await;
    let none = app.publish(json!({"title": "x", "tags": "a"})).await;
    let all = [core, web, none];
    finds(&app, &all, "labels.team", "core", &[core]).await;
    finds(&app, &all, "labels.team", "Core", &[]).await;
    finds(&app, &all, "labels.a.b", "1", &[core]).await;
    finds(&app, &all, "labels.odd", "\u{1}é\"\\", &[core]).await;
    finds(&app, &all, "labels.absent", "", &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn payloads_are_searched_by_path_and_value_to_the_last_digit() {
    let app = App::start().await;
    let big = publish_text(&app, r#"{"order": {"id": 9007199254740993}, "n": 1.50}"#).await;
    let near = publish_text(&app, r#"{"order": {"id": 9007199254740992}, "n": "1.50"}"#).await;
    let list = publish_text(&app, r#"{"order": [{"id": true}, {"id": null}], "n": {}}"#).await;
    let none = app.publish(json!({"title": "x", "tags": "a"})).await;
    let all = [big, near, list, none];
    finds(&app, &all, "payload.order.id", "9007199254740993", &[big]).await;
    finds(&app, &all, "payload.order.id", "9007199254740993.0", &[big]).await;
    finds(&app, &all, "payload.order.id", "9007199254740992", &[near]).await;
    finds(&app, &all, "payload.n", "1.50", &[big, near]).await;
    finds(&app, &all, "payload.n", "1.5", &[big]).await;
    finds(&app, &all, "payload.order.0.id", "true", &[list]).await;
    finds(&app, &all, "payload.order.1.id", "null", &[list]).await;
    finds(&app, &all, "payload.order.-1.id", "null", &[]).await;
    finds(&app, &all, "payload.n", "{}", &[]).await;
    finds(&app, &all, "payload.absent", "null", &[]).await;
}

/// PostgreSQL cannot make text of `\u0000`. One such payload must not be the end of the search for all others.
#[tokio::test(flavor = "multi_thread")]
async fn hostile_payloads_are_found_or_not_and_never_an_error() {
    let app = App::start().await;
    let nul = publish_text(&app, r#"{"a\u0000": 1, "s": "x\u0000y", "id": 7}"#).await;
    let half = publish_text(&app, r#"{"s": "\ud800", "id": 7}"#).await;
    let deep = publish_text(&app, &format!("{{\"d\": {}1{}, \"id\": 7}}", "[".repeat(127), "]".repeat(127))).await;
    let huge = publish_text(&app, &format!("{{\"id\": 7, \"n\": 1{}}}", "0".repeat(5_000))).await;
    let all = [nul, half, deep, huge];
    finds(&app, &all, "payload.id", "7", &all).await;
    finds(&app, &all, "payload.s", "x", &[]).await;
    finds(&app, &all, "payload.n", "1e5000", &[huge]).await;
    finds(&app, &all, "payload.d.0.0.0.0.0.0", "1", &[]).await;
    finds(&app, &all, "payload.%'\"\\.;--", "1", &[]).await;
    app.get("/events?payload.s=x%00y").await.names(&["payload.s"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_field_excludes_and_an_event_without_it_stays() {
    let app = App::start().await;
    let job = json!({
        "title": "x", "tags": "f,eu", "event_type": "order.paid", "correlation_id": "c", "ordering_key": "k",
    });
    publish_failed(&app, job, "oh").await;
    let bare = app.publish(json!({"title": "y", "tags": "a"})).await;
    let pushed = app.publish(json!({"event_type": "order.created"})).await;
    for (name, value) in [
        ("tags", "eu,other"),
        ("event_type", "order.paid"),
        ("correlation_id", "c"),
        ("ordering_key", "k"),
        ("status", "FAILED"),
        ("worker_id", "host:1"),
    ] {
        assert_eq!(found(&app, &[(&format!("not.{name}"), value)]).await, [bare, pushed], "{name}");
    }
    assert_eq!(found(&app, &[("not.event_type", "order.paid"), ("not.tags", "a")]).await, [pushed]);
    assert_eq!(found(&app, &[("event_type", "order.paid"), ("not.event_type", "order.paid")]).await, [0; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn filters_combine_and_pages_follow_each_other() {
    let app = App::start().await;
    let mut wanted = Vec::new();
    for n in 0..60 {
        let (team, tag) = (["core", "web"][n % 2], ["a", "b", "c"][n % 3]);
        let event =
            json!({"title": format!("Job no. {n}"), "tags": tag, "labels": {"team": team}, "payload": {"n": n % 5}});
        let id = app.publish(event).await;
        if n % 2 == 0 && n % 3 != 2 && n % 5 == 4 && n != 34 {
            wanted.push(id);
        }
    }
    assert_eq!(wanted.len(), 3);
    let query = "labels.team=core&not.tags=c&payload.n=4&text=JOB&not.text=no.%2034";
    for limit in [1, 2, 100] {
        assert_eq!(app.walk_ids(&format!("/events?{query}&limit={limit}")).await.concat(), wanted);
        let backwards = app.walk_ids(&format!("/events?{query}&order=desc&limit={limit}")).await.concat();
        assert_eq!(backwards.into_iter().rev().collect::<Vec<_>>(), wanted);
    }
    let all = app.get(&format!("/events?{query}")).await.expect(200).json();
    assert_eq!((&all["total"], &all["total_is_exact"], &all["next"]), (&json!(3), &json!(true), &json!(null)));
    let skipped = app.get(&format!("/events?{query}&offset=2")).await.expect(200).json();
    assert_eq!((ids(&skipped), &skipped["total"]), (vec![wanted[2]], &json!(3)));
    // A cursor belongs to its filter.
    let next = app.get(&format!("/events?{query}&limit=1")).await.json()["next"].as_str().expect("a cursor").to_owned();
    app.get(&format!("/events?payload.n=4&limit=1&after={next}")).await.problem(400, "cursor_mismatch");
}

/// Publishes 1,700 events that nobody looks for.
async fn publish_hay(app: &App) {
    let jobs: Vec<Value> = (0..850).map(|_| json!({"title": "hay", "tags": "a", "payload": {"n": 2}})).collect();
    for _ in 0..2 {
        app.post("/events/batch", &json!({"events": jobs})).await.expect(201);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_no_index_serves_is_searched_in_steps_that_say_how_far_they_got() {
    let flags = vec!["--list-scan-rows=500".to_owned()];
    let app = App::start_with(Options { flags, ..Options::default() }).await;
    let first = app.publish(json!({"title": "needle", "tags": "a", "labels": {"l": "1"}, "payload": {"n": 1}})).await;
    publish_hay(&app).await;
    for query in ["text=needle", "labels.l=1", "payload.n=1", "not.payload.n=2", "not.text=hay"] {
        let begin = app.get(&format!("/events?{query}&order=desc")).await.expect(200).json();
        assert_eq!(ids(&begin), [0; 0], "{query}");
        assert!(begin["next"].is_string() && begin["searched_to"].is_string(), "{query}: {begin}");
        assert_eq!(begin["total_is_exact"], false, "{query}");
        let pages = app.walk_ids(&format!("/events?{query}&order=desc")).await;
        assert_eq!((pages.len(), pages.concat()), (4, vec![first]), "{query}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn large_payloads_end_a_page_and_the_next_one_goes_on() {
    let app = App::start().await;
    let large = format!("{{\"x\": \"{}\", \"n\": 1}}", "y".repeat(1_000_000));
    for _ in 0..9 {
        publish_text(&app, &large).await;
    }
    let last = publish_text(&app, "{\"n\": 2}").await;
    let pages = app.walk_ids("/events?payload.n=2").await;
    assert_eq!((pages.len(), pages.concat()), (2, vec![last]), "5 large payloads are over 4 MiB");
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_filters_are_refused_by_name() {
    let app = App::start().await;
    let long = |name: &str, length: usize| format!("{name}={}", "x".repeat(length));
    for (query, field) in [
        ("text=", "text"),
        (&*long("text", 201), "text"),
        ("not.text=a%00b", "not.text"),
        ("labels.=x", "labels."),
        (&*long("labels.team", 256), "labels.team"),
        ("payload.=x", "payload."),
        ("payload.a..b=x", "payload.a..b"),
        ("payload.a.b.c.d.e.f.g.h.i=x", "payload.a.b.c.d.e.f.g.h.i"),
        (&*long("payload.a", 1_001), "payload.a"),
        ("payload=x", "payload"),
        ("labels=x", "labels"),
        ("not.since=2026-01-01T00:00:00Z", "not.since"),
        ("not.until=2026-01-01T00:00:00Z", "not.until"),
        ("not.status=WRONG", "not.status"),
        ("not.not.text=x", "not.not.text"),
        ("text=a&text=b", "text"),
        ("payload.a=1&payload.a=2", "payload.a"),
    ] {
        app.get(&format!("/events?{query}")).await.names(&[field]);
    }
    let nine = (0..9).map(|n| format!("payload.p{n}=1")).collect::<Vec<_>>().join("&");
    app.get(&format!("/events?{nine}")).await.names(&["payload"]);
    let mixed = (0..4).map(|n| format!("labels.l{n}=1&not.labels.m{n}=1")).collect::<Vec<_>>().join("&");
    app.get(&format!("/events?{mixed}")).await.expect(200);
    app.get(&format!("/events?{mixed}&not.labels.x=1")).await.names(&["labels"]);
    for (filter, field) in [
        (json!({"text": ""}), "filter.text"),
        (json!({"labels": {"a": 1}}), "filter.labels.a"),
        (json!({"payload": {"a": [1]}}), "filter.payload.a"),
        (json!({"payload": {"a": {}}}), "filter.payload.a"),
        (json!({"payload": {"a..b": 1}}), "filter.payload.a..b"),
        (json!({"payload": 1}), "filter.payload"),
        (json!({"not": {"since": "2026-01-01T00:00:00Z"}}), "filter.not.since"),
        (json!({"not": {"colour": "red"}}), "filter.not.colour"),
        (json!({"not": {"not": {}}}), "filter.not.not"),
        (json!({"not": {"payload": {"": 1}}}), "filter.not.payload"),
        (json!({"payload.a": 1}), "filter.payload.a"),
    ] {
        app.post("/events/retry", &json!({"filter": filter, "dry_run": true})).await.names(&[field]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_not_see_contents_may_not_search_them() {
    let app = App::with_keys().await;
    app.publish(json!({"title": "x", "tags": "a", "labels": {"l": "1"}, "payload": {"card": "4242"}})).await;
    let reader = app.holder_of("read").await;
    for query in ["text=x", "not.text=x", "payload.card=4242", "not.payload.card=1"] {
        let refused = reader.get(&format!("/events?{query}")).await;
        assert_eq!(refused.json()["scope"], "reveal", "{query}");
        refused.problem(403, "scope_missing");
    }
    assert_eq!(found(&reader, &[("labels.l", "1"), ("not.event_type", "y")]).await.len(), 1);
    let revealer = app.holding(&app.make_key(json!({"scopes": ["read", "reveal"]})).await);
    assert_eq!(found(&revealer, &[("payload.card", "4242"), ("text", "X")]).await.len(), 1);
    let operator = app.holding(&app.make_key(json!({"scopes": ["operate"]})).await);
    for filter in [json!({"text": "x"}), json!({"payload": {"card": 1}}), json!({"not": {"payload": {"card": 1}}})] {
        for dry_run in [true, false] {
            let body = json!({"filter": filter, "dry_run": dry_run});
            operator.post("/events/cancel", &body).await.problem(403, "scope_missing");
        }
    }
    assert_eq!(app.count("SELECT count(*) FROM waybill.operations").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_redacted_is_not_searched() {
    let app = App::with_keys().await;
    let redact = json!({"settings": {"redact": ["payload.card.*", "payload.items.*.price", "payload.who"]}});
    app.patch("/namespaces/default", &redact).await.expect(200);
    let payload = json!({"card": {"number": "4242"}, "items": [{"price": 5, "sku": "a"}], "who": {"name": "ann"}});
    let id = app.publish(json!({"title": "x", "tags": "a", "payload": payload})).await;
    for path in ["card.number", "card", "items.0.price", "who", "who.name", "who.0", "card.number.0"] {
        let query = format!("payload.{path}");
        app.get(&format!("/events?{query}=4242")).await.names(&[&query]);
        let query = format!("not.payload.{path}");
        app.get(&format!("/events?{query}=4242")).await.names(&[&query]);
        for dry_run in [true, false] {
            let body = json!({"filter": {"not": {"payload": {path: 1}}}, "dry_run": dry_run});
            app.post("/events/cancel", &body).await.names(&[&format!("filter.not.payload.{path}")]);
        }
    }
    assert_eq!(found(&app, &[("payload.items.0.sku", "a")]).await, [id]);
    assert_eq!(app.count("SELECT count(*) FROM waybill.operations").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bulk_retry_by_payload_does_what_its_dry_run_says() {
    let app = App::start().await;
    let mut orders = Vec::new();
    for n in 0..30 {
        let team = ["core", "web"][n % 2];
        let job = json!({
            "title": format!("order {n}"), "tags": "f", "labels": {"team": team},
            "payload": {"shop": {"id": n % 3}},
        });
        orders.push(publish_failed(&app, job, if n % 5 == 0 { "Timeout" } else { "declined" }).await);
    }
    let wanted: Vec<i64> = (0..30).filter(|n| n % 3 == 1 && n % 2 == 1 && n % 5 != 0).map(|n| orders[n]).collect();
    let filter = json!({
        "text": "ORDER", "payload": {"shop.id": 1}, "not": {"text": "timeout", "labels": {"team": "core"}},
    });
    let preview = app.dry_run("/events/retry", filter.clone()).await;
    assert_eq!((&preview["matched"], &preview["matched_is_exact"]), (&json!(wanted.len()), &json!(true)));
    assert_eq!(ids_of(&preview), wanted);
    let started = app.start_operation("/events/retry", &json!({"filter": filter})).await;
    assert_eq!(started["filter"]["payload"], json!({"shop.id": "1"}), "conditions are texts");
    // What an operation says about its filter is a filter.
    let again = app.dry_run("/events/retry", started["filter"].clone()).await;
    assert!(again["matched"].as_i64() <= preview["matched"].as_i64());
    assert_eq!(app.until_complete(&started).await["done"], json!(wanted.len()));
    let pending: Vec<i64> = found(&app, &[("status", "PENDING"), ("limit", "100")]).await;
    assert_eq!(pending, wanted);
}

#[tokio::test(flavor = "multi_thread")]
async fn bulk_operations_exclude_states_and_workers_and_search_to_the_end() {
    let flags = vec!["--list-scan-rows=500".to_owned()];
    let app = App::start_with(Options { flags, ..Options::default() }).await;
    let failed = publish_failed(&app, json!({"title": "x", "tags": "f"}), "oh").await;
    let cancelled = app.publish_tagged("a").await;
    app.post_empty(&format!("/events/{cancelled}/cancel")).await.expect(200);
    for filter in [json!({"not": {"status": "CANCELLED"}}), json!({"not": {"worker_id": "other:1"}, "text": "OH"})] {
        assert_eq!(ids_of(&app.dry_run("/events/retry", filter).await), [failed]);
    }
    assert_eq!(ids_of(&app.dry_run("/events/retry", json!({"not": {"worker_id": "host:1"}})).await), [cancelled]);
    let both = json!({"status": "FAILED", "not": {"status": "FAILED"}});
    assert_eq!(app.operate_on_all("/events/retry", both).await, 0);
    publish_hay(&app).await;
    app.publish(json!({"title": "needle", "tags": "a", "payload": {"n": 1}})).await;
    assert_eq!(app.dry_run("/events/cancel", json!({"payload": {"n": 1}})).await["matched_is_exact"], false);
    assert_eq!(app.operate_on_all("/events/cancel", json!({"payload": {"n": 1}})).await, 1);
    assert_eq!(app.operate_on_all("/events/cancel", json!({"not": {"text": "hay"}})).await, 0);
}

fn ids_of(preview: &Value) -> Vec<i64> {
    preview["sample"].as_array().expect("events").iter().filter_map(|event| event["id"].as_i64()).collect()
}

/// The filter of an operation contains values of payloads and errors, and its count tells how many events have them.
#[tokio::test(flavor = "multi_thread")]
async fn what_an_operation_searched_for_is_hidden_from_those_who_may_not_see_contents() {
    let app = App::with_keys().await;
    app.publish(json!({"title": "t", "tags": "a", "payload": {"email": "ann@shop.example", "order": 17}})).await;
    let filter = json!({"payload": {"email": "ann@shop.example", "order": 17}, "not": {"text": "declined"}});
    let started = app.post("/events/cancel", &json!({"filter": filter})).await.expect(202).json();
    assert_eq!(started["filter"]["payload"]["email"], "ann@shop.example", "its caller has sent it");
    let (id, reader) = (started["id"].as_i64().expect("an id"), app.holder_of("read").await);
    for path in
        ["/operations".to_owned(), format!("/operations/{id}"), "/ui/operations".into(), format!("/ui/operations/{id}")]
    {
        let shown = reader.get(&path).await.expect(200).text;
        assert!(
            !shown.contains("ann@shop") && !shown.contains("email") && !shown.contains("declined"),
            "{path}: {shown}"
        );
        assert!(shown.contains("[redacted]"), "{path}: {shown}");
        assert!(app.get(&path).await.expect(200).text.contains("ann@shop"), "{path}");
    }
    app.patch("/namespaces/default", &json!({"settings": {"redact": ["payload.email"]}})).await.expect(200);
    let shown = app.get(&format!("/operations/{id}")).await.expect(200).json()["filter"].clone();
    assert_eq!(shown["payload"], json!({"email": "[redacted]", "order": "17"}));
}
