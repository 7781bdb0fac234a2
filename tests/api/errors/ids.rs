//! Invalid and unknown ids.

use super::request;
use crate::support::App;

const WORK: [&str; 5] = ["start", "heartbeat", "complete", "fail", "release"];
const OPERATE: [&str; 3] = ["reset", "retry", "cancel"];

#[tokio::test(flavor = "multi_thread")]
async fn an_id_that_is_not_a_positive_number_is_refused_on_every_route() {
    let app = App::start().await;
    let verbs = ["abc", "null", "1.5", "1e3", "0x10", "%00", "%20", "%FF", "1%2F2"];
    let numbers = ["0", "01", "+1", "-1", "-9223372036854775808", "-99999999999999999999999"];
    for id in verbs.into_iter().chain(numbers) {
        app.get(&format!("/events/{id}")).await.names(&["id"]);
        for verb in WORK {
            app.post_text(&format!("/events/{id}/{verb}"), r#"{"worker_id":"w:1"}"#).await.names(&["id"]);
        }
        for verb in OPERATE {
            request(&app, "POST", &format!("/events/{id}/{verb}"), None).await.names(&["id"]);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_id_is_not_found_on_any_route() {
    let app = App::start().await;
    for id in ["1", "9007199254740991", "9007199254740992", "9223372036854775807", "99999999999999999999999"] {
        app.get(&format!("/events/{id}")).await.problem(404, "event_not_found");
        for verb in WORK {
            let reply = app.post_text(&format!("/events/{id}/{verb}"), r#"{"worker_id":"w:1"}"#).await;
            reply.problem(404, "event_not_found");
        }
        for verb in OPERATE {
            app.post_empty(&format!("/events/{id}/{verb}")).await.problem(404, "event_not_found");
        }
    }
}
