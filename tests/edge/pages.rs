//! Headers that limit what a browser does with a page of this server.

use crate::support::App;

#[tokio::test(flavor = "multi_thread")]
async fn every_page_has_the_headers_that_limit_a_browser() {
    let app = App::start().await;
    for path in ["/docs", "/problems/invalid_request"] {
        let page = app.get(path).await.expect(200);
        assert_eq!(page.header("content-type"), Some("text/html; charset=utf-8"), "{path}");
        let policy = page.header("content-security-policy").expect("a policy");
        for rule in ["default-src 'none';", "base-uri 'none';", "form-action 'none';", "frame-ancestors 'none'"] {
            assert!(policy.contains(rule), "{path}: {policy}");
        }
        assert!(!policy.contains("unsafe-eval") && !policy.contains("script-src 'unsafe"), "{path}: {policy}");
        for (name, value) in [
            ("x-content-type-options", Some("nosniff")),
            ("referrer-policy", Some("same-origin")),
            ("x-frame-options", Some("DENY")),
            ("cross-origin-opener-policy", Some("same-origin")),
            ("strict-transport-security", None),
        ] {
            assert_eq!(page.header(name), value, "{path}");
        }
    }
    for path in ["/docs/scalar.js", "/openapi.yaml", "/openapi.json"] {
        assert_eq!(app.get(path).await.expect(200).header("x-content-type-options"), Some("nosniff"), "{path}");
    }
}
