//! Presets by the requests that providers describe: the type and the key of the event.

use serde_json::json;

use super::SECRET;
use crate::support::App;
use crate::support::sources::hmac_hex;

/// The headers of a provider: the type, the delivery and the signature, which is the HMAC in hexadecimal digits.
struct Provider {
    name: &'static str,
    event: (&'static str, &'static str),
    delivery: (&'static str, &'static str),
    signature: &'static str,
    body: &'static str,
}

/// Requests as these providers send them: their headers, and a short body.
const PROVIDERS: [Provider; 2] = [
    Provider {
        name: "gitea",
        event: ("X-Gitea-Event", "push"),
        delivery: ("X-Gitea-Delivery", "f6266f16-1bf3-46a5-9ea4-602e06ead473"),
        signature: "X-Gitea-Signature",
        body: r#"{"ref": "refs/heads/develop", "before": "28e1879d029cb852e4844d9c718537df08844e03"}"#,
    },
    Provider {
        name: "linear",
        event: ("Linear-Event", "Issue"),
        delivery: ("Linear-Delivery", "234d1a4e-b617-4388-90fe-adc3633d6b72"),
        signature: "Linear-Signature",
        body: r#"{"action": "create", "type": "Comment", "createdAt": "2020-01-23T12:53:18.084Z"}"#,
    },
];

#[tokio::test(flavor = "multi_thread")]
async fn the_type_and_the_key_come_from_the_headers_of_gitea_and_linear() {
    for provider in PROVIDERS {
        let app = App::start().await;
        let source = app.source(json!({"provider": provider.name, "verify": {"secret": SECRET}})).await;
        let send = async |signature: &str| {
            let signature = (provider.signature, signature);
            let headers = [("content-type", "application/json"), provider.event, provider.delivery, signature];
            app.send_webhook(&source, &headers, provider.body).await
        };
        let signature = hmac_hex(SECRET, provider.body.as_bytes());
        for _ in 0..2 {
            send(&signature).await.expect(202);
        }
        send(&hmac_hex("wrong", provider.body.as_bytes())).await.problem(401, "webhook_refused");
        let event = app.only_event().await;
        let seen = (&event["event_type"], &event["idempotency_key"]);
        assert_eq!(seen, (&json!(provider.event.1), &json!(provider.delivery.1)), "{}", provider.name);
    }
}
