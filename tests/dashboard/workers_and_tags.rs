//! `/ui/workers` and `/ui/tags`.

use serde_json::json;

use crate::support::{App, database};

#[tokio::test(flavor = "multi_thread")]
async fn workers_show_what_they_hold_and_whether_they_are_stale() {
    let app = App::with_fixed_clock().await;
    let id = app.publish_tagged("reports").await;
    app.claim("reports", "host:1").await.expect("an event");
    assert!(app.claim("mail", "host:2").await.is_none());
    let page = app.get("/ui/workers").await.expect(200).text;
    assert!(page.contains("host:1") && page.contains(&format!("/ui/events/{id}\"")), "{page}");
    assert!(page.contains("q=worker%3Ahost%3A1") && page.contains("tag%3Amail") && !page.contains("state warning"));
    app.advance(31);
    assert!(app.get("/ui/workers").await.expect(200).text.contains("stale, holds 1"));
    app.complete(id, "host:1").await.expect(200);
    app.advance(91);
    let page = app.get("/ui/workers").await.expect(200).text;
    assert!(page.contains("silent") && !page.contains("stale, holds"), "{page}");
}

#[tokio::test(flavor = "multi_thread")]
async fn tags_show_depth_age_rates_and_who_serves_them() {
    let app = App::with_fixed_clock().await;
    for _ in 0..3 {
        app.publish_tagged("reports").await;
    }
    app.claim("mail", "host:2").await;
    app.engine().record_stats().await.expect("stats");
    let page = app.get("/ui/tags").await.expect(200).text;
    let [reports, mail] = ["reports", "mail"].map(|tag| {
        let row = page.split(&format!("data-id=\"{tag}\"")).nth(1).unwrap_or_else(|| panic!("no {tag} in {page}"));
        row.split("</tr>").next().expect("a row").to_owned()
    });
    assert!(reports.contains("no worker") && reports.contains(">3<") && reports.contains("<time"), "{reports}");
    assert!(reports.contains("q=status%3APENDING+tag%3Areports") && !reports.contains(">0</a></td></tr>"), "{reports}");
    assert!(mail.contains("served") && mail.contains("href=\"/ui/workers\">1<"), "{mail}");
}

#[tokio::test(flavor = "multi_thread")]
async fn many_workers_and_tags_are_shown_in_pages() {
    let app = App::start().await;
    let workers = "INSERT INTO waybill.workers (namespace_id, worker_id, tags, first_seen_at, last_seen_at)
        SELECT 1, 'host:' || to_char(n, 'FM000'), ARRAY['tag-' || to_char(n, 'FM000')], now(), now()
        FROM generate_series(1, 120) n";
    database::execute(&app.url, workers).await;
    for (path, name) in [("/ui/workers", "host:"), ("/ui/tags", "tag-")] {
        let mut seen = 0;
        let mut next = Some(path.to_owned());
        while let Some(path) = next {
            let page = app.get(&path).await.expect(200).text;
            let rows = page.matches(&format!("data-id=\"{name}")).count();
            assert!(rows <= 50, "{rows} rows");
            seen += rows;
            let link = page.split("rel=\"next\" href=\"").nth(1).and_then(|rest| rest.split('"').next());
            next = link.map(|link| link.replace("&amp;", "&"));
        }
        assert_eq!(seen, 120, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn other_namespaces_are_not_shown_and_links_stay_in_theirs() {
    let app = App::start().await;
    let other = app.namespace("other").await;
    other.publish(json!({"title": "x", "tags": "theirs"})).await;
    other.claim("elsewhere", "their:1").await;
    for (path, name) in [("/ui/tags", "theirs"), ("/ui/workers", "their:1")] {
        assert!(!app.get(path).await.expect(200).text.contains(name), "{path}");
        let page = app.get(&format!("{path}?namespace=other")).await.expect(200).text;
        assert!(page.contains(name) && page.contains("namespace=other\">"), "{path}");
    }
    let overview = app.get("/?namespace=other").await.expect(200).text;
    assert!(overview.contains("tag theirs has 1 waiting") && overview.contains("tag%3Atheirs&amp;namespace=other"));
}
