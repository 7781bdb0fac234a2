//! A real Prometheus scrapes a real server with a key, as `deploy/prometheus/prometheus.yaml` has it.

use std::fs;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::{Scrape, all_traffic, rules, start};
use crate::support::{App, Reply, http_client, until};

/// A Prometheus with its own folder and port. It ends when it is dropped, and with this process at the latest.
struct Prometheus {
    shell: Child,
    folder: TempDir,
    base: String,
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        let _ = self.shell.wait();
    }
}

impl Prometheus {
    /// Starts one that scrapes this server every second with this key, and waits until it answers.
    async fn start(app: &App, key: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let target = app.base.strip_prefix("http://").expect("plain HTTP");
        // The example, with another target and a shorter interval.
        let example = fs::read_to_string(rules::deployed("prometheus/prometheus.yaml")).expect("the example");
        let config = example.replace("localhost:8080", target).replace("interval: 15s", "interval: 1s");
        assert!(config.contains(target) && config.contains("scrape_interval: 1s"), "{config}");
        fs::write(folder.path().join("prometheus.yaml"), config).expect("a file");
        fs::write(folder.path().join("waybill.key"), key).expect("a file");
        fs::copy(rules::deployed("prometheus/alerts.yaml"), folder.path().join("alerts.yaml")).expect("a file");
        let port = free_port();
        let log = fs::File::create(folder.path().join("log")).expect("a file");
        // A shell ends it when the pipe to this process is closed in any way.
        let mut command = Command::new("sh");
        command.args(["-c", "\"$@\" & read -r _; kill -9 $!; wait $!", "sh", "prometheus"]);
        command.arg("--config.file=prometheus.yaml").arg("--storage.tsdb.path=data");
        command.arg(format!("--web.listen-address=127.0.0.1:{port}")).current_dir(folder.path());
        command.stdin(Stdio::piped()).stdout(log.try_clone().expect("a file")).stderr(log);
        let shell = command.spawn().expect("a shell");
        let prometheus = Prometheus { shell, folder, base: format!("http://127.0.0.1:{port}") };
        until("Prometheus answers", async || prometheus.get("/-/ready").await.is_some()).await;
        prometheus
    }

    /// Returns the answer to a request, or `None` if there is none yet.
    async fn get(&self, path: &str) -> Option<String> {
        let response = http_client().get(format!("{}{path}", self.base)).send().await.ok()?;
        let reply = Reply::of(response).await;
        (reply.status == 200).then_some(reply.text)
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// Returns the series that a query finds.
    async fn query(&self, query: &str) -> Vec<Value> {
        let encoded = query.bytes().fold(String::new(), |text, byte| format!("{text}%{byte:02x}"));
        let request = http_client().get(format!("{}/api/v1/query?query={encoded}", self.base));
        let reply = Reply::of(request.send().await.expect("a response")).await;
        assert_eq!(reply.status, 200, "{query}: {}", reply.text);
        reply.json()["data"]["result"].as_array().expect("a result").clone()
    }
}

/// Returns a port that nobody uses now.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port").port()
}

#[tokio::test(flavor = "multi_thread")]
async fn prometheus_scrapes_a_server_with_a_key_and_answers_queries_about_every_metric() {
    let app = start(&[]).await;
    all_traffic(&app).await;
    let key = app.make_key(json!({"name": "prometheus", "scopes": ["admin"]})).await;
    let app = app.using(&key);
    let prometheus = Prometheus::start(&app, &key.key).await;
    until("it has scraped the server", async || prometheus.query("up{job=\"waybill\"} == 1").await.len() == 1).await;
    let scrape = Scrape::of(&app).await;
    assert!(scrape.families.len() > 50, "{:?}", scrape.families);
    for (family, kind) in &scrape.families {
        let series = if kind == "histogram" { format!("{family}_count") } else { family.clone() };
        assert!(!prometheus.query(&series).await.is_empty(), "{series}\n{}", prometheus.log());
    }
    let of_tag = prometheus.query("waybill_queue_depth{namespace=\"default\", tag=\"email\"}").await;
    assert_eq!(of_tag[0]["value"][1], "1", "{of_tag:?}");
    let quantile = "histogram_quantile(0.99, sum by (le) (waybill_http_request_duration_seconds_bucket))";
    let found = prometheus.query(quantile).await;
    let seconds: f64 = found[0]["value"][1].as_str().and_then(|text| text.parse().ok()).expect("a number");
    assert!(seconds.is_finite() && seconds > 0.0, "{found:?}");

    // The rules are loaded, and each can be evaluated.
    let state = async || prometheus.get("/api/v1/rules").await.expect("an answer");
    until("all rules were evaluated", async || !state().await.contains("\"health\":\"unknown\"")).await;
    let groups: Value = serde_json::from_str(&state().await).expect("JSON");
    let groups = groups["data"]["groups"].as_array().expect("groups").clone();
    let loaded: Vec<&Value> = groups.iter().flat_map(|group| group["rules"].as_array().expect("rules")).collect();
    assert_eq!(loaded.len(), rules::alerts().len());
    assert!(loaded.iter().all(|rule| rule["health"] == "ok"), "{loaded:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn prometheus_sees_a_server_that_refuses_its_key_as_down() {
    let app = start(&[]).await.with_admin_key().await;
    let prometheus = Prometheus::start(&app, "wb_this_is_no_key").await;
    until("it has tried", async || prometheus.query("up{job=\"waybill\"} == 0").await.len() == 1).await;
    assert!(prometheus.query("waybill_build_info").await.is_empty());
}
