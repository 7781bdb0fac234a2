//! How `/metrics` answers: in two formats, and without asking the database for every scraper.

use std::io::Write as _;
use std::process::{Command, Stdio};

use super::{Scrape, all_traffic, start};
use crate::support::{App, Reply};

async fn accepting(app: &App, accept: &str) -> Reply {
    let request = app.client.get(format!("{}/metrics", app.base)).header("accept", accept);
    Reply::of(request.send().await.expect("a response")).await.expect(200)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scraper_gets_openmetrics_only_if_it_asks_for_it() {
    let app = start(&[]).await;
    let of_prometheus = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.4,*/*;q=0.1";
    let open = accepting(&app, of_prometheus).await;
    assert_eq!(open.header("content-type"), Some("application/openmetrics-text; version=1.0.0; charset=utf-8"));
    assert!(open.text.ends_with("# EOF\n") && open.text.contains("# TYPE waybill_events_claimed counter\n"));
    for accept in ["*/*", "text/plain", "application/json"] {
        let plain = accepting(&app, accept).await;
        assert_eq!(plain.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
        assert_eq!(plain.header("vary"), Some("accept"));
        assert!(!plain.text.contains("# EOF"), "{}", plain.text);
        assert!(plain.text.contains("# TYPE waybill_events_claimed_total counter\n"), "{}", plain.text);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn promtool_has_nothing_to_object_to() {
    let app = start(&[]).await;
    all_traffic(&app).await;
    let text = app.get("/metrics").await.expect(200).text;
    let mut promtool = Command::new("promtool");
    promtool.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = promtool.spawn().expect("promtool is installed: see scripts/prepare");
    child.stdin.take().expect("a pipe").write_all(text.as_bytes()).expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && said.is_empty(), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn many_scrapers_share_one_look_at_the_database() {
    let app = App::start().await;
    let depth = "waybill_queue_depth{namespace=\"default\",tag=\"a\"}";
    assert!(!Scrape::of(&app).await.has(depth));
    app.publish_tagged("a").await;
    let scrape = Scrape::of(&app).await;
    assert!(!scrape.has(depth), "the gauges are those of the first scrape");
    assert_eq!(scrape.value("waybill_events_received_total"), 1.0, "counters are not");
    app.stop().await;
    let app = start(&[]).await;
    app.publish_tagged("a").await;
    assert!(Scrape::of(&app).await.has(depth));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_versions_and_the_process_are_shown() {
    let app = start(&[]).await;
    let scrape = Scrape::of(&app).await;
    let of = |name: &str| scrape.samples.iter().find(|(series, _)| series.starts_with(&format!("{name}{{")));
    let (build, one) = of("waybill_build_info").expect("a series");
    assert!(build.contains(&format!("version=\"{}\"", env!("CARGO_PKG_VERSION"))) && *one == 1.0, "{build}");
    let compiler = build.split("rustc=\"").nth(1).and_then(|rest| rest.split('"').next()).expect("a version");
    assert!(compiler.starts_with("1."), "{compiler}");
    let (database, _) = of("waybill_database_info").expect("a series");
    assert!(database.contains("version=\"1"), "{database}");
    let now = chrono::Utc::now().timestamp() as f64;
    assert!((now - scrape.value("process_start_time_seconds")).abs() < 600.0);
    assert!(scrape.value("process_resident_memory_bytes") > 1_000_000.0);
    assert!(scrape.value("process_open_fds") > 3.0);
    assert!(scrape.value("process_max_fds") >= scrape.value("process_open_fds"));
}
