//! A right webhook for each scheme: the examples that providers and standards publish, where there are any.

use serde_json::json;

use super::*;
use crate::domain::source::hmac::Algorithm;
use crate::domain::source::secret::BASE64;

/// A webhook that is right, for a scheme.
pub(super) struct Example {
    pub verify: Value,
    pub secret: &'static str,
    pub headers: Vec<(&'static str, String)>,
    pub body: &'static [u8],
    pub now: f64,
    /// The header whose last characters are a signature or a password.
    pub proof: &'static str,
}

impl Example {
    pub(super) fn check(
        &self,
        secrets: &[&str],
        headers: &[(&str, &str)],
        body: &[u8],
        now: f64,
    ) -> Result<(), Rejection> {
        let verify = verify(&self.verify);
        let secrets: Vec<SourceSecret> = secrets.iter().map(|secret| verify.parse_secret(secret).unwrap()).collect();
        verify.check(&secrets.iter().collect::<Vec<_>>(), &webhook(headers, body), now)
    }

    pub(super) fn headers(&self) -> Vec<(&str, &str)> {
        self.headers.iter().map(|(name, value)| (*name, value.as_str())).collect()
    }
}

pub(super) fn hex(algorithm: Algorithm, key: &[u8], message: &[&[u8]]) -> String {
    algorithm.sign(key, message).iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().concat()
}

/// The example that GitHub publishes for those who write their own verification.
pub(super) fn github() -> Example {
    Example {
        verify: json!({"scheme": "github"}),
        secret: "It's a Secret to Everybody",
        headers: vec![(
            "X-Hub-Signature-256",
            "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17".into(),
        )],
        body: b"Hello, World!",
        now: 0.0,
        proof: "X-Hub-Signature-256",
    }
}

/// The example in Slack's description of its signatures.
pub(super) fn slack() -> Example {
    Example {
        verify: json!({"scheme": "slack"}),
        secret: "8f742231b10e8888abcd99yyyzzz85a5",
        headers: vec![
            ("X-Slack-Request-Timestamp", "1531420618".into()),
            ("X-Slack-Signature", "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503".into()),
        ],
        body: b"token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V\
                &channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=\
                &response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN\
                &trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c",
        now: 1_531_420_618.0,
        proof: "X-Slack-Signature",
    }
}

/// The example of the reference libraries of Standard Webhooks.
pub(super) fn standard() -> Example {
    Example {
        verify: json!({"scheme": "standard"}),
        secret: WHSEC,
        headers: vec![
            ("webhook-id", "msg_p5jXN8AQM9LWM0D4loKWxJek".into()),
            ("webhook-timestamp", "1614265330".into()),
            ("webhook-signature", "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=".into()),
        ],
        body: br#"{"test": 2432232314}"#,
        now: 1_614_265_330.0,
        proof: "webhook-signature",
    }
}

/// Made by the rules that Stripe publishes, which have no example with its secret.
pub(super) fn stripe() -> Example {
    let (secret, body): (&str, &[u8]) = ("whsec_test", br#"{"id": "evt_1", "type": "charge.succeeded"}"#);
    let signature = hex(Algorithm::Sha256, secret.as_bytes(), &[b"1492774577.", body]);
    Example {
        verify: json!({"scheme": "stripe"}),
        secret,
        headers: vec![("Stripe-Signature", format!("t=1492774577,v1={signature}"))],
        body,
        now: 1_492_774_577.0,
        proof: "Stripe-Signature",
    }
}

/// Made by the rules that Shopify publishes, which have no example with its secret.
pub(super) fn shopify() -> Example {
    use base64::Engine;
    let (secret, body): (&str, &[u8]) = ("hush", br#"{"id":788032119674292922}"#);
    let signature = BASE64.encode(Algorithm::Sha256.sign(secret.as_bytes(), &[body]));
    Example {
        verify: json!({"scheme": "shopify"}),
        secret,
        headers: vec![("X-Shopify-Hmac-Sha256", signature)],
        body,
        now: 0.0,
        proof: "X-Shopify-Hmac-Sha256",
    }
}

/// Test case 2 of RFC 2202.
pub(super) fn hmac() -> Example {
    Example {
        verify: json!({"scheme": "hmac", "header": "X-Sign", "algorithm": "sha1", "prefix": "sha1="}),
        secret: "Jefe",
        headers: vec![("X-Sign", "sha1=effcdf6ae5eb2fa2d27416d5f184df9c259a7c79".into())],
        body: b"what do ya want for nothing?",
        now: 0.0,
        proof: "X-Sign",
    }
}

/// The example of RFC 7617.
pub(super) fn basic() -> Example {
    Example {
        verify: json!({"scheme": "basic", "username": "Aladdin"}),
        secret: "open sesame",
        headers: vec![("Authorization", "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==".into())],
        body: b"{}",
        now: 0.0,
        proof: "Authorization",
    }
}

pub(super) fn token() -> Example {
    Example {
        verify: json!({"scheme": "token", "header": "Authorization", "prefix": "Bearer "}),
        secret: "s3cret",
        headers: vec![("authorization", "Bearer s3cret".into())],
        body: b"{}",
        now: 0.0,
        proof: "authorization",
    }
}

pub(super) fn all() -> [Example; 8] {
    [standard(), github(), stripe(), slack(), shopify(), hmac(), basic(), token()]
}

pub(super) fn is_signed(example: &Example) -> bool {
    !matches!(example.verify["scheme"].as_str(), Some("basic" | "token"))
}

/// Returns another secret of the right form.
pub(super) fn another_secret(example: &Example) -> &'static str {
    if example.secret == WHSEC { "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD" } else { "another" }
}
