//! Every scheme over HTTP: right, wrong, altered, missing, stale and rotated. `src/domain/source/tests` has the
//! examples that providers publish, with every byte altered.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::hmac::{self, HMAC_SHA256, HMAC_SHA512, Key};
use serde_json::{Value, json};
use waybill::domain::signature::{Secret, sign};

use super::path_of;
use crate::support::App;
use crate::support::sources::hmac_hex;

/// A way to sign: the settings of a source, and the headers for a secret, a body and a time.
struct Scheme {
    verify: Value,
    secrets: [&'static str; 2],
    headers: fn(&str, &str, i64) -> Vec<(&'static str, String)>,
    has_time: bool,
    /// Whether the body is part of what is proved.
    is_signed: bool,
}

fn base64_hmac(algorithm: hmac::Algorithm, secret: &str, body: &str) -> String {
    STANDARD.encode(hmac::sign(&Key::new(algorithm, secret.as_bytes()), body.as_bytes()))
}

const PLAIN: [&str; 2] = ["0ld-secret", "n3w-secret"];
const WHSEC: [&str; 2] = ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"];

fn schemes() -> Vec<Scheme> {
    let scheme = |verify: Value, headers: fn(&str, &str, i64) -> Vec<(&'static str, String)>| Scheme {
        has_time: matches!(verify["scheme"].as_str(), Some("standard" | "stripe" | "slack")),
        is_signed: !matches!(verify["scheme"].as_str(), Some("token" | "basic")),
        secrets: if verify["scheme"] == "standard" { WHSEC } else { PLAIN },
        verify,
        headers,
    };
    vec![
        scheme(json!({"scheme": "standard"}), |secret, body, time| {
            let secret = Secret::parse(secret).expect("a secret");
            let signature = sign(&[secret], "msg_1", time, body.as_bytes());
            vec![
                ("webhook-id", "msg_1".into()),
                ("webhook-timestamp", time.to_string()),
                ("webhook-signature", signature),
            ]
        }),
        scheme(json!({"scheme": "github"}), |secret, body, _| {
            vec![("X-Hub-Signature-256", format!("sha256={}", hmac_hex(secret, body.as_bytes())))]
        }),
        scheme(json!({"scheme": "stripe"}), |secret, body, time| {
            let signature = hmac_hex(secret, format!("{time}.{body}").as_bytes());
            vec![("Stripe-Signature", format!("t={time},v1={signature},v0=00"))]
        }),
        scheme(json!({"scheme": "slack"}), |secret, body, time| {
            let signature = hmac_hex(secret, format!("v0:{time}:{body}").as_bytes());
            vec![("X-Slack-Request-Timestamp", time.to_string()), ("X-Slack-Signature", format!("v0={signature}"))]
        }),
        scheme(json!({"scheme": "shopify"}), |secret, body, _| {
            vec![("X-Shopify-Hmac-Sha256", base64_hmac(HMAC_SHA256, secret, body))]
        }),
        scheme(
            json!({"scheme": "hmac", "header": "X-Sign", "algorithm": "sha512", "encoding": "base64", "prefix": "v=", }),
            |secret, body, _| vec![("X-Sign", format!("v={}", base64_hmac(HMAC_SHA512, secret, body)))],
        ),
        scheme(json!({"scheme": "basic", "username": "ann"}), |secret, _, _| {
            vec![("Authorization", format!("Basic {}", STANDARD.encode(format!("ann:{secret}"))))]
        }),
        scheme(json!({"scheme": "token", "header": "X-Token"}), |secret, _, _| vec![("X-Token", secret.to_owned())]),
    ]
}

/// A source under one of the schemes, on a server with a clock that stands still.
struct Trial<'a> {
    app: &'a App,
    scheme: Scheme,
    source: Value,
}

impl<'a> Trial<'a> {
    async fn of(app: &'a App, scheme: Scheme) -> Self {
        let mut verify = scheme.verify.clone();
        verify["secret"] = scheme.secrets[0].into();
        let source = app.source(json!({"verify": verify})).await;
        Trial { app, scheme, source }
    }

    /// Sends a body that was signed as another one, maybe. Returns the status.
    async fn send(&self, secret: &str, signed: &str, sent: &str, time: i64) -> u16 {
        let headers = (self.scheme.headers)(secret, signed, time);
        let headers: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let reply = self.app.send_webhook(&self.source, &headers, sent).await;
        if reply.status == 401 {
            assert_eq!(reply.json()["code"], "webhook_refused");
        }
        reply.status
    }

    async fn now(&self, secret: &str) -> u16 {
        self.send(secret, "{\"a\":1}", "{\"a\":1}", self.app.now().timestamp()).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_scheme_accepts_its_sender_and_nobody_else() {
    let app = App::with_fixed_clock().await;
    for scheme in schemes() {
        let trial = Trial::of(&app, scheme).await;
        let (name, [secret, other]) = (trial.scheme.verify.to_string(), trial.scheme.secrets);
        let before = app.stored_events().await;
        assert_eq!(trial.now(secret).await, 202, "{name}");
        let stored = before + 1;
        assert_eq!(app.stored_events().await, stored, "{name}");
        assert_eq!(trial.now(other).await, 401, "{name} with another secret");
        assert_eq!(app.send_webhook(&trial.source, &[], "{\"a\":1}").await.status, 401, "{name} without headers");
        let now = app.now().timestamp();
        if trial.scheme.is_signed {
            assert_eq!(trial.send(secret, "{\"a\":1}", "{\"a\":2}", now).await, 401, "{name} with another byte");
        }
        if trial.scheme.has_time {
            for time in [now - 301, now + 302] {
                assert_eq!(trial.send(secret, "{\"a\":1}", "{\"a\":1}", time).await, 401, "{name} at another time");
            }
            let tolerance = json!({"verify": {"tolerance_seconds": 600}});
            app.patch(&path_of(&trial.source), &tolerance).await.expect(200);
            assert_eq!(trial.send(secret, "{}", "{}", now - 301).await, 202, "{name} with another tolerance");
            assert_eq!(app.stored_events().await, stored + 1, "{name}");
        } else {
            assert_eq!(app.stored_events().await, stored, "{name}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_scheme_accepts_both_secrets_until_the_overlap_has_ended() {
    let app = App::with_fixed_clock().await;
    for scheme in schemes() {
        let trial = Trial::of(&app, scheme).await;
        let (name, [old, new]) = (trial.scheme.verify.to_string(), trial.scheme.secrets);
        let rotation = json!({"secret": new, "overlap_seconds": 60});
        app.post(&format!("{}/rotate-secret", path_of(&trial.source)), &rotation).await.expect(200);
        assert_eq!((trial.now(old).await, trial.now(new).await), (202, 202), "{name}");
        app.advance(59);
        assert_eq!(trial.now(old).await, 202, "{name}");
        app.advance(1);
        assert_eq!((trial.now(old).await, trial.now(new).await), (401, 202), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_scheme_the_path_is_enough() {
    let app = App::with_keys().await;
    let source = app.source(json!({"verify": {"scheme": "none"}})).await;
    app.send_webhook(&source, &[], "{}").await.expect(202);
    assert_eq!(app.stored_events().await, 1);
}
