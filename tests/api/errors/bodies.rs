//! Bodies that are not JSON, not an object, or not declared as JSON.

use serde_json::{Value, json};

use super::JSON_ROUTES;
use crate::support::{App, Reply};

/// Asserts a 400 for a body that is not JSON.
#[track_caller]
fn is_malformed(reply: Reply) {
    let problem = reply.problem(400, "malformed_json");
    assert_eq!(problem["errors"][0]["field"], "body", "{problem}");
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_json_is_refused_on_every_route() {
    let app = App::start().await;
    for (path, _) in JSON_ROUTES {
        for body in ["", "{", r#"{"worker_id":}"#, "nonsense"] {
            is_malformed(app.post_text(path, body).await);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn json_with_small_syntax_errors_is_refused() {
    let app = App::start().await;
    let malformed = [
        " ",
        "\"",
        "[1",
        "{'title':'a job'}",
        r#"{"title":"a job",}"#,
        r#"{"title":"a job"}}"#,
        r#"{"title":"a job"} {}"#,
        r#"{"title":"a job" "tags":"email"}"#,
        r#"{title:"a job"}"#,
        r#"{"priority":01}"#,
        r#"{"priority":+1}"#,
        r#"{"priority":.5}"#,
        r#"{"priority":NaN}"#,
        r#"{"payload":tru}"#,
        r#"{"payload":"\x41"}"#,
        r#"{"payload":"\u12"}"#,
        "{\"title\":\"a\njob\"}",
        "\u{feff}{\"title\":\"a job\",\"tags\":\"email\"}",
        "{\"title\":\"a job\"/* note */}",
    ];
    for body in malformed {
        is_malformed(app.post_text("/events", body).await);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn json_truncated_anywhere_is_refused() {
    let app = App::start().await;
    let whole = r#"{"title":"a \u00fc","tags":["email"],"priority":-1,"payload":{"a":[1.5e3,true,null]}}"#;
    for length in 0..whole.len() {
        is_malformed(app.post_text("/events", &whole[..length]).await);
    }
    app.post_text("/events", whole).await.expect(201);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_is_not_utf_8_is_refused() {
    let app = App::start().await;
    for bad in [&b"\xff"[..], b"\xc3\x28", b"\xed\xa0\x80", b"\xf8\x88\x80\x80\x80", b"\xc0\xaf"] {
        for (before, after) in [
            (r#"{"title":""#, r#"","tags":"email"}"#),
            (r#"{"title":"a job","tags":"email","payload":{"a":""#, r#""}}"#),
            (r#"{"title":"a job","tags":"email",""#, r#"":1}"#),
            (r#"{"title":"a job","tags":"email"}"#, ""),
        ] {
            let body = [before.as_bytes(), bad, after.as_bytes()].concat();
            is_malformed(app.post_bytes("/events", body).await);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_is_not_an_object_is_refused_on_every_route() {
    let app = App::start().await;
    for (path, good) in JSON_ROUTES {
        for body in ["null", "5", "\"text\"", "true", "[]", &format!("[{good}]")] {
            app.post_text(path, body).await.names(&["body"]);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_field_is_named_on_every_route() {
    let app = App::start().await;
    for (path, good) in JSON_ROUTES {
        let body = good.replacen('{', r#"{"colour":"red","":1,"#, 1);
        app.post_text(path, &body).await.names(&["", "colour"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_field_given_twice_is_named_on_every_route() {
    let app = App::start().await;
    for (path, good) in JSON_ROUTES {
        let fields = &good[1..good.len() - 1];
        let parsed: serde_json::Map<String, Value> = serde_json::from_str(good).expect("an object");
        let names: Vec<&str> = parsed.keys().map(String::as_str).collect();
        app.post_text(path, &format!("{{{fields},{fields}}}")).await.names(&names);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_field_given_twice_is_named_even_if_it_is_escaped_differently() {
    let app = App::start().await;
    let body = r#"{"title":"a job","\u0074itle":"another","tags":"email"}"#;
    app.post_text("/events", body).await.names(&["title"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_label_given_twice_is_named() {
    let app = App::start().await;
    let body = r#"{"title":"a job","tags":"email","labels":{"region":"eu","region":"us"}}"#;
    app.post_text("/events", body).await.names(&["labels.region"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_of_another_content_type_is_refused_on_every_route() {
    let app = App::start().await;
    let others = ["text/plain", "application/x-www-form-urlencoded", "text/json", "application/jsonp", "json", ""];
    for (path, good) in JSON_ROUTES {
        for other in others {
            let request = app.client.post(format!("{}{path}", app.base)).header("content-type", other).body(good);
            Reply::of(request.send().await.expect("a response")).await.problem(415, "unsupported_media_type");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_compressed_body_is_refused_on_every_route() {
    let app = App::start().await;
    let id = app.publish_tagged("a").await;
    let bodiless = [(&*format!("/events/{id}/cancel"), "")];
    for (path, good) in JSON_ROUTES.into_iter().chain(bodiless) {
        for encoding in ["gzip", "br", "deflate", "identity, gzip"] {
            let request = app.client.post(format!("{}{path}", app.base)).header("content-type", "application/json");
            let request = request.header("content-encoding", encoding).body(good.to_owned());
            let reply = Reply::of(request.send().await.expect("a response")).await;
            assert_eq!(reply.header("accept-encoding"), Some("identity"));
            let problem = reply.problem(415, "unsupported_content_encoding");
            assert!(problem["detail"].to_string().contains("Content-Encoding"), "{problem}");
        }
    }
    assert_eq!(app.status(id).await, "PENDING");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_with_the_identity_encoding_is_accepted() {
    let app = App::start().await;
    for encoding in ["identity", "Identity", ""] {
        let request = app.client.post(format!("{}/events", app.base)).header("content-encoding", encoding);
        let request = request.header("content-type", "application/json").body(JSON_ROUTES[0].1);
        Reply::of(request.send().await.expect("a response")).await.expect(201);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_without_a_content_type_is_refused_on_every_route() {
    let app = App::start().await;
    for (path, good) in JSON_ROUTES {
        let request = app.client.post(format!("{}{path}", app.base)).body(good);
        Reply::of(request.send().await.expect("a response")).await.problem(415, "unsupported_media_type");
        app.post_empty(path).await.problem(415, "unsupported_media_type");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn too_deep_nesting_is_refused_in_every_field() {
    let app = App::start().await;
    let deep = format!("{}{}", "[".repeat(200_000), "]".repeat(200_000));
    for field in ["title", "tags", "labels", "priority", "run_at", "backoff", "payload"] {
        let mut body = json!({"event_type": "deep"});
        body[field] = "HERE".into();
        let body = body.to_string().replace("\"HERE\"", &deep);
        app.post_text("/events", &body).await.names(&[field]);
    }
}
