//! Which URLs a subscription may have, as far as the URL itself tells.

use serde_json::json;

use super::{NOWHERE, update, with_flags};
use crate::support::{App, Options};

/// Hosts of private networks, in every spelling that is parsed as an address.
const PRIVATE_HOSTS: [&str; 30] = [
    "127.0.0.1",
    "127.0.0.1.",
    "127.1",
    "2130706433",
    "0x7f000001",
    "0177.0.0.1",
    "127%2e0%2e0%2e1",
    "１２７.0.0.1",
    "0",
    "0.0.0.0",
    "10.0.0.1",
    "10.1",
    "172.16.0.1",
    "192.168.1.1",
    "0xc0a80101",
    "100.64.0.1",
    "169.254.169.254",
    "0xa9fea9fe",
    "2852039166",
    "224.0.0.1",
    "255.255.255.255",
    "[::1]",
    "[::]",
    "[::ffff:127.0.0.1]",
    "[::ffff:a9fe:a9fe]",
    "[64:ff9b::10.0.0.1]",
    "[2002:7f00:1::]",
    "[fd00:ec2::254]",
    "[fe80::1]",
    "localhost",
];

#[tokio::test(flavor = "multi_thread")]
async fn private_addresses_are_refused_in_every_spelling() {
    let app = with_flags(&["--webhook-allow=none"]).await;
    for host in PRIVATE_HOSTS {
        for url in [format!("http://{host}/"), format!("https://{host}:8443/hook?a=b")] {
            let reply = app.post("/subscriptions", &json!({ "url": url })).await;
            assert!(reply.text.contains("not a public address"), "{url}: {}", reply.text);
            reply.names(&["url"]);
        }
    }
    assert_eq!(app.count("SELECT count(*) FROM waybill.subscriptions").await, 0);
    for host in ["93.184.215.14", "[2606:4700::1111]", "shop.example", "bücher.example"] {
        app.subscribe(&format!("https://{host}/hook"), json!({"is_active": false})).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn allowing_a_network_allows_no_other() {
    let app = with_flags(&["--webhook-allow=10.0.0.0/8"]).await;
    app.subscribe("http://10.1.2.3:9000/hook", json!({"is_active": false})).await;
    for url in [
        "http://127.0.0.1/",
        "http://localhost:9000/",
        "http://192.168.1.1/",
        "http://[::1]/",
        "http://169.254.169.254/",
    ] {
        app.post("/subscriptions", &json!({ "url": url })).await.names(&["url"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_url_that_is_not_a_webhook_url_is_refused() {
    let app = App::start().await;
    let long = format!("https://a.example/{}", "x".repeat(2048));
    for url in [
        "",
        "shop.example/hook",
        "/hook",
        "//shop.example/hook",
        "ftp://shop.example/",
        "file:///etc/passwd",
        "gopher://shop.example/",
        "javascript:alert(1)",
        "https://",
        "http:///x",
        "https:////shop.example/hook",
        "https://\\shop.example/hook",
        "https://?shop.example",
        "https://:8443/hook",
        "https://user@shop.example/",
        "https://user:word@shop.example/",
        "https://:word@shop.example/",
        "https://shop.example/#part",
        "https://shop.example:0/",
        "https://shop.example:65536/",
        "https://shop example/",
        "https://shop.example/a\nb",
        " https://shop.example/",
        "https://shop.example/\u{0}",
        "https://256.1.1.1/",
        "https://[::1/",
        &long,
    ] {
        app.post("/subscriptions", &json!({ "url": url })).await.names(&["url"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subscription_cannot_be_changed_to_a_private_address() {
    let app = with_flags(&["--webhook-allow=none"]).await;
    let subscription = app.subscribe(NOWHERE, json!({})).await;
    for host in PRIVATE_HOSTS {
        update(&app, &subscription, json!({"url": format!("http://{host}/")})).await.names(&["url"]);
    }
    assert_eq!(app.get(&super::path_of(&subscription)).await.json()["url"], NOWHERE);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subscription_whose_address_is_no_longer_allowed_can_still_be_changed_and_disabled() {
    let generous = App::start().await;
    let subscription = generous.subscribe("http://127.0.0.1:9/hook", json!({})).await;
    let flags = vec!["--webhook-allow=none".to_owned()];
    let strict = App::start_with(Options { url: Some(generous.url.clone()), flags, ..Options::default() }).await;
    let changed = update(&strict, &subscription, json!({"is_active": false, "name": "off"})).await.expect(200).json();
    assert_eq!((&changed["is_active"], &changed["url"]), (&json!(false), &json!("http://127.0.0.1:9/hook")));
    update(&strict, &subscription, json!({"url": "http://127.0.0.1:9/hook"})).await.names(&["url"]);
}
