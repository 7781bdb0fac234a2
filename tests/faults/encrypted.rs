//! A database that is reached through TLS.

use std::net::TcpListener;
use std::process::Command;

use serde_json::json;

use crate::support::foreign::{ForeignPostgres, put_file};
use crate::support::process::{Process, waybill};
use crate::support::{ClusterDir, HeldTable, Reply, database};

/// Starts a PostgreSQL with a certificate for `localhost`. Returns its TLS URL and the directory
/// with the certificate to trust.
async fn encrypted() -> (ForeignPostgres, String, ClusterDir) {
    let certificate = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
    let cluster_dir = ClusterDir::with_cluster();
    put_file(&cluster_dir, "server.crt", &certificate.cert.pem());
    put_file(&cluster_dir, "server.key", &certificate.signing_key.serialize_pem());
    // The system does not give a port that was just closed to another process.
    let port = TcpListener::bind("127.0.0.1:0").and_then(|taken| taken.local_addr()).expect("a port").port();
    let trusted = ClusterDir::new();
    std::fs::write(trusted.root().join("ca.pem"), certificate.cert.pem()).expect("a file");
    let postgres = ForeignPostgres::start_at(cluster_dir, port, &["ssl=on", "listen_addresses=127.0.0.1"], &[]).await;
    let url = postgres.url_by_tcp("localhost");
    (postgres, format!("{url}?sslmode=require"), trusted)
}

fn serve(url: &str, trusted: Option<&ClusterDir>) -> Command {
    let mut command = waybill(&["serve", "--bind", "127.0.0.1:0"]);
    command.env("DATABASE_URL", url);
    if let Some(trusted) = trusted {
        command.env("SSL_CERT_FILE", trusted.root().join("ca.pem"));
    }
    command
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_is_used_through_tls_and_its_errors_are_recognised() {
    let (postgres, url, trusted) = encrypted().await;
    let server = Process::start(serve(&url, Some(&trusted)));
    let event = json!({"title": "t", "tags": "a"});
    server.app.publish(event.clone()).await;
    let by_tls = "SELECT count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) \
                  WHERE ssl AND application_name = 'waybill'";
    assert!(database::count(&postgres.url(), by_tls).await > 0);

    let mut held = HeldTable::lock(&postgres.url(), "waybill.events").await;
    let request = server.app.client.post(format!("{}/events", server.app.base)).json(&event);
    let publish = tokio::spawn(async move { Reply::of(request.send().await.expect("a response")).await });
    held.terminate_blocked().await;
    publish.await.expect("no panic").problem(503, "database_unavailable");
    held.unlock().await;
    server.app.publish(event).await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_with_an_untrusted_certificate_is_not_used() {
    let (_postgres, url, _) = encrypted().await;
    let mut server = serve(&url, None);
    // The server would retry for half a minute; its first log line is enough.
    let mut child = server.stderr(std::process::Stdio::piped()).spawn().expect("it runs");
    let mut stderr = std::io::BufReader::new(child.stderr.take().expect("a pipe"));
    let mut line = String::new();
    std::io::BufRead::read_line(&mut stderr, &mut line).expect("text");
    child.kill().expect("our child");
    child.wait().expect("our child");
    assert!(line.contains("certificate"), "{line}");
}
