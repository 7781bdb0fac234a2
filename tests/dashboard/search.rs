//! The filter line of the list of events: what it finds, and its words as links.

use serde_json::{Value, json};

use crate::support::{App, Options};

/// Returns the page for a filter line.
async fn page(app: &App, line: &str) -> String {
    let query = reqwest::Url::parse_with_params("http://any/ui/events", [("q", line)]).expect("a URL");
    app.get(&format!("/ui/events?{}", query.query().unwrap_or_default())).await.expect(200).text
}

fn shows(page: &str, id: i64) -> bool {
    page.contains(&format!("data-id=\"{id}\""))
}

#[tokio::test(flavor = "multi_thread")]
async fn words_labels_payloads_and_exclusions_find_what_the_api_finds() {
    let app = App::start().await;
    let job = |title: &str, team: &str, order: i64| json!({"title": title, "tags": "a", "event_type": format!("type.{team}"), "labels": {"team": team}, "payload": {"order": {"id": order}}});
    let ids = [
        app.publish(job("Charge card", "core", 17)).await,
        app.publish(job("Send mail", "core", 18)).await,
        app.publish(job("Charge card again", "web", 17)).await,
    ];
    for (line, wanted) in [
        ("charge card", [true, false, true]),
        ("\"card again\"", [false, false, true]),
        ("payload.order.id=17 -type:type.web", [true, false, false]),
        ("label.team=core -payload.order.id=17", [false, true, false]),
        ("-again", [true, true, false]),
        ("-label.team=core", [false, false, true]),
        ("text:MAIL", [false, true, false]),
    ] {
        let page = page(&app, line).await;
        assert_eq!(ids.map(|id| shows(&page, id)), wanted, "{line}");
    }
    let filter = page(&app, "label.team=core -payload.order.id=17").await;
    let json = r#"data-filter="{&quot;labels&quot;:{&quot;team&quot;:&quot;core&quot;},&quot;not&quot;:{&quot;payload&quot;:{&quot;order.id&quot;:&quot;17&quot;}}}""#;
    assert!(filter.contains(json), "{filter}");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_word_is_a_link_to_the_page_without_it() {
    let app = App::start().await;
    let page = page(&app, "tag:a <b>&\"x y\" -type:\"t\"").await;
    for link in [
        "href=\"/ui/events?q=%3Cb%3E%26%22x+y%22+-type%3A%22t%22\"",
        "href=\"/ui/events?q=tag%3Aa+-type%3A%22t%22\"",
        "href=\"/ui/events?q=tag%3Aa+%3Cb%3E%26%22x+y%22\"",
    ] {
        assert!(page.contains(link), "{link} in {page}");
    }
    assert!(page.contains("<bdi>&lt;b&gt;&amp;&quot;x y&quot;</bdi>"), "{page}");
    assert!(!app.get("/ui/events").await.text.contains("class=\"chips\""));
    let alone = app.get("/ui/events?q=tag:a&order=asc").await.expect(200).text;
    assert!(alone.contains("href=\"/ui/events?order=asc\""), "{alone}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_search_that_is_not_at_its_end_says_how_far_it_got() {
    let flags = vec!["--list-scan-rows=500".to_owned()];
    let app = App::start_with(Options { flags, ..Options::default() }).await;
    let jobs: Vec<_> = (0..600).map(|_| json!({"title": "hay", "tags": "a"})).collect();
    app.post("/events/batch", &json!({"events": jobs})).await.expect(201);
    let searching = page(&app, "needle").await;
    for text in ["No match yet; searched back to <time", "Go on", "all that match"] {
        assert!(searching.contains(text), "{text} in {searching}");
    }
    assert!(!searching.contains("No event matches") && !searching.contains("0+"), "{searching}");
    let next = searching.split("rel=\"next\" href=\"").nth(1).expect("a link").split('"').next().expect("its address");
    let last = app.get(&next.replace("&amp;", "&")).await.expect(200).text;
    assert!(last.contains("No event matches.") && !last.contains("rel=\"next\""), "{last}");
    app.post("/events/batch", &json!({"events": jobs})).await.expect(201);
    assert!(page(&app, "").await.contains("1,000+"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_is_told_what_a_search_needs() {
    let app = App::with_keys().await;
    let settings = json!({"settings": {"redact": ["payload.card"]}});
    app.patch("/namespaces/default", &settings).await.expect(200);
    app.publish(json!({"title": "x", "tags": "a", "labels": {"l": "1"}, "payload": {"card": "4242"}})).await;
    let reader = app.holder_of("read").await;
    for line in ["x", "payload.a=1", "-payload.a=1", "-y"] {
        let refused = page(&reader, line).await;
        assert!(refused.contains("role=\"alert\"") && refused.contains("the scope reveal"), "{line}: {refused}");
        assert!(!refused.contains("data-id"), "{line}");
    }
    assert!(page(&reader, "label.l=1").await.contains("data-id"));
    let hint = reader.get("/ui/events").await.text;
    assert!(!hint.contains("or words of a title"), "{hint}");
    let redacted = page(&app, "payload.card=4242").await;
    assert!(redacted.contains("payload.card") && redacted.contains("is redacted"), "{redacted}");
    assert!(!redacted.contains("data-id"));
    let twice = page(&app, "-a -b").await;
    assert!(twice.contains("role=\"alert\"") && twice.contains("Only one text can be excluded."), "{twice}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tag_in_a_filtered_list_narrows_it() {
    let app = App::start().await;
    app.publish(json!({"title": "x", "tags": "payments,web"})).await;
    for (line, tag, link) in [
        ("status:PENDING since:1h", "web", "q=status%3APENDING+since%3A1h+tag%3Aweb"),
        ("tag:payments status:PENDING", "web", "q=status%3APENDING+tag%3Aweb"),
        ("", "payments", "q=tag%3Apayments"),
    ] {
        let page = page(&app, line).await;
        assert!(page.contains(&format!("href=\"/ui/events?{link}\">{tag}</a>")), "{link} in {page}");
    }
    let ascending = app.get("/ui/events?order=asc").await.expect(200).text;
    assert!(ascending.contains("href=\"/ui/events?order=asc&amp;q=tag%3Aweb\""), "{ascending}");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_what_applies_to_the_state_is_offered() {
    let app = App::start().await;
    for (line, wanted) in [
        ("", [true, true, true]),
        ("status:FAILED", [true, false, false]),
        ("status:PENDING", [false, true, false]),
        ("status:PROCESSING", [false, true, true]),
        ("status:COMPLETED", [false, false, false]),
    ] {
        let page = page(&app, line).await;
        let offered = ["Retry", "Cancel", "Reset"].map(|verb| page.contains(&format!("data-verb=\"{verb}\"")));
        assert_eq!(offered, wanted, "{line}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mistyped_word_is_named_with_links_to_what_may_be_meant() {
    let app = App::start().await;
    app.publish_tagged("a").await;
    let wrong = page(&app, "statuss:FAILED tag:a").await;
    for text in [
        "A filter has no word statuss:.",
        "href=\"/ui/events?q=status%3AFAILED+tag%3Aa\"",
        "q=%22statuss%3AFAILED%22+tag%3Aa",
    ] {
        assert!(wrong.contains(text), "{text} in {wrong}");
    }
    assert!(!wrong.contains("data-id"), "{wrong}");
    for (line, reason) in [("status:WAITING", "status: must be one of PENDING"), ("worker:nobody", "worker: ")] {
        let wrong = page(&app, line).await;
        assert!(wrong.contains(reason), "{line}: {wrong}");
    }
    assert!(page(&app, "Tags:a since:2020-01-01").await.contains("data-id"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_id_is_found_wherever_it_is_typed() {
    let app = App::start().await;
    let id = app.publish(json!({"title": "Charge card", "tags": "a"})).await;
    let other = app.publish(json!({"title": format!("Refund of {id}"), "tags": "a"})).await;
    let found = page(&app, &id.to_string()).await;
    assert!(found.contains(&format!("href=\"/ui/events/{id}\">Event {id}: <bdi>Charge card</bdi>")), "{found}");
    assert!(shows(&found, other) && !shows(&found, id), "{found}");
    let named = app.get(&format!("/ui/events?q=id:{id}")).await.expect(303);
    assert_eq!(named.header("location"), Some(format!("/ui/events/{id}").as_str()));
    let missing = page(&app, "id:4711").await;
    assert!(missing.contains("There is no event 4711."), "{missing}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_page_of_a_list_by_age_can_be_opened_later() {
    let app = App::with_fixed_clock().await;
    let events: Vec<Value> = (0..60).map(|_| json!({"title": "a job", "tags": "a"})).collect();
    app.post("/events/batch", &json!({"events": events})).await.expect(201);
    let first = app.get("/ui/events?q=since%3A1h+tag%3Aa").await.expect(200).text;
    assert!(first.contains("value=\"since:1h tag:a\""), "the form keeps what was typed: {first}");
    let (_, link) = first.split_once("rel=\"next\" href=\"").expect("a next page");
    let link = link.split('"').next().expect("an address").replace("&amp;", "&");
    app.advance(90);
    let second = app.get(&link).await.expect(200).text;
    assert!(second.contains("data-id=") && !second.contains("role=\"alert\""), "{second}");
}
