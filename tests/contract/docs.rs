//! `/openapi.yaml` and `/docs`: the document as it is served.

use super::document::Document;
use crate::support::App;

#[tokio::test(flavor = "multi_thread")]
async fn the_document_is_served_unchanged() {
    let app = App::start().await;
    let reply = app.get("/openapi.yaml").await.expect(200);
    assert_eq!(reply.header("content-type"), Some("application/yaml"));
    assert_eq!(reply.text, include_str!("../../openapi.yaml"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_document_is_also_served_as_json_in_the_same_order() {
    let app = App::start().await;
    let reply = app.get("/openapi.json").await.expect(200);
    assert_eq!(reply.header("content-type"), Some("application/json"));
    let yaml: serde_json::Value = serde_saphyr::from_str(waybill::http::docs::OPENAPI).expect("YAML");
    assert_eq!(reply.json(), yaml);
    assert!(reply.text.starts_with(r#"{"openapi":"3.1"#), "the order of the document is kept");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_may_load_and_call_nothing_but_this_server() {
    let app = App::start().await;
    let page = app.get("/docs").await.expect(200);
    let policy = page.header("content-security-policy").expect("a policy");
    let rules: Vec<Vec<&str>> = policy.split(';').map(|rule| rule.split_whitespace().collect()).collect();
    let allowed =
        |name: &str| rules.iter().find(|rule| rule[0] == name).unwrap_or_else(|| panic!("{name}"))[1..].to_vec();
    assert_eq!(allowed("default-src"), ["'none'"]);
    assert_eq!(allowed("script-src"), ["'self'"]);
    assert_eq!(allowed("connect-src"), ["'self'"]);
    let sources = ["'none'", "'self'", "'unsafe-inline'", "data:"];
    for rule in &rules {
        assert!(rule[1..].iter().all(|source| sources.contains(source)), "{rule:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_names_no_other_host_and_has_no_inline_script() {
    let app = App::start().await;
    let page = app.get("/docs").await.expect(200).text;
    assert!(!page.contains("//"), "{page}");
    for tag in page.split("<script").skip(1) {
        let (attributes, rest) = tag.split_once('>').expect("the end of a tag");
        assert!(rest.starts_with("</script>"), "a script in the page itself: {tag}");
        assert!(attributes.contains("src=\"/docs/scalar.js\"") || attributes.contains("type=\"application/json\""));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_links_to_its_script_and_its_document() {
    let app = App::start().await;
    let page = app.get("/docs").await.expect(200).text;
    let settings =
        page.split("data-configuration='").nth(1).and_then(|rest| rest.split('\'').next()).expect("settings");
    let settings: serde_json::Value = serde_json::from_str(settings).expect("settings are JSON");
    app.get(settings["url"].as_str().expect("a document")).await.expect(200);
    let script = app.get("/docs/scalar.js").await.expect(200);
    assert_eq!(script.header("content-type"), Some("text/javascript; charset=utf-8"));
    assert!(script.text.len() > 1_000_000);
}

#[test]
fn references_stay_within_the_document() {
    let text = waybill::http::docs::OPENAPI;
    let document = Document::load();
    for target in text.split("$ref: '").skip(1).map(|rest| rest.split('\'').next().expect("a reference")) {
        assert!(document.get(target.strip_prefix('#').expect(target)).is_some(), "{target}");
    }
}
