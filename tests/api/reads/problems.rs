//! `/problems/{code}` and the members of problems that programs act on.

use serde_json::{Value, json};
use waybill::http::code::Code;

use crate::support::App;

#[tokio::test(flavor = "multi_thread")]
async fn every_code_has_a_page_that_says_what_to_do() {
    let app = App::start().await;
    for code in Code::ALL {
        let page = app.get(&format!("/problems/{}", code.name())).await.expect(200);
        assert_eq!(page.header("content-type"), Some("text/html; charset=utf-8"));
        for text in [code.name(), code.title(), &code.status().as_u16().to_string()] {
            assert!(page.text.contains(text), "{text} in {}", page.text);
        }
        assert!(!page.text.contains('`'), "{}", page.text);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_type_of_a_problem_is_the_path_of_its_page() {
    let app = App::start().await;
    let problem = app.get("/events/1").await.problem(404, "event_not_found");
    app.get(problem["type"].as_str().expect("a path")).await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_an_unknown_code_is_not_found() {
    let app = App::start().await;
    for path in ["/problems/no_such_code", "/problems/EVENT_NOT_FOUND", "/problems/"] {
        app.get(path).await.problem(404, "route_not_found");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_loads_and_runs_nothing() {
    let app = App::start().await;
    let page = app.get("/problems/overloaded").await.expect(200);
    let policy = page.header("content-security-policy").expect("a policy");
    assert!(policy.starts_with("default-src 'none'; style-src 'sha256-"), "{policy}");
    assert!(!page.text.contains("<script") && !page.text.contains("//"), "{}", page.text);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_problem_says_whether_anything_was_done_and_whether_to_send_it_again() {
    let app = App::start().await;
    let judgement = |problem: &Value| (problem["effect"].clone(), problem["retryable"].clone());
    let invalid = app.post("/events", &json!({})).await.problem(400, "invalid_request");
    assert_eq!(judgement(&invalid), (json!("none"), json!(false)));
    app.publish(json!({"title": "a job", "tags": "a", "max_retries": 1})).await;
    let claim = app.claim("a", "w:1").await.expect("an event");
    let failure = json!({"worker_id": "w:1", "lease_id": claim["lease_id"]});
    let last = app.post(&format!("/events/{}/fail", claim["id"]), &failure).await.problem(400, "max_retries_exceeded");
    assert_eq!(judgement(&last), (json!("recorded"), json!(false)));
}
