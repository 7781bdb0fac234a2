//! The address of a client behind a proxy, as the log of requests shows it.

use crate::support::process::{Process, waybill};
use crate::support::{database, until};

/// Starts a server that trusts these proxies and logs its requests.
async fn start(trusted: &str) -> Process {
    let mut command = waybill(&["serve", "--bind", "127.0.0.1:0", "--trusted-proxies", trusted]);
    command.env("DATABASE_URL", database::empty().await).env("WAYBILL_LOG", "waybill::http=debug");
    Process::start(command)
}

/// Sends a request with header lines. Returns the address in its log line.
async fn logged_client(server: &Process, id: &str, lines: &[(&str, &str)]) -> String {
    let mut request = server.app.client.get(format!("{}/health", server.app.base)).header("x-request-id", id);
    for (name, value) in lines {
        request = request.header(*name, *value);
    }
    request.send().await.expect("a response");
    let line = || server.stderr().lines().find(|line| line.contains(&format!("request_id={id}"))).map(str::to_owned);
    until("it is logged", async || line().is_some()).await;
    let line = line().expect("a line");
    line.split("client=").nth(1).and_then(|rest| rest.split(' ').next()).expect("an address").to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn only_a_trusted_proxy_is_believed() {
    let reported = ("x-forwarded-for", "203.0.113.7, 192.0.2.1");
    let server = start("127.0.0.0/8,10.0.0.0/8").await;
    assert_eq!(logged_client(&server, "r1", &[reported]).await, "192.0.2.1");
    assert_eq!(logged_client(&server, "r2", &[("forwarded", "for=\"[2001:db8::1]:80\"")]).await, "2001:db8::1");
    let through_two = [("x-forwarded-for", "203.0.113.7, 192.0.2.1"), ("x-forwarded-for", "10.0.0.9")];
    assert_eq!(logged_client(&server, "r3", &through_two).await, "192.0.2.1");
    assert_eq!(logged_client(&server, "r4", &[("x-forwarded-for", "nonsense")]).await, "127.0.0.1");
    assert_eq!(logged_client(&server, "r5", &[reported, ("forwarded", "for=8.8.8.8")]).await, "127.0.0.1");
    assert_eq!(logged_client(&server, "r6", &[]).await, "127.0.0.1");
    server.stop().await;

    let server = start("10.0.0.0/8").await;
    assert_eq!(logged_client(&server, "r1", &[reported]).await, "127.0.0.1");
    server.stop().await;
}
