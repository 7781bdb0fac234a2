//! The proof that a webhook is its sender's.
//!
//! All schemes look at the raw bytes of the body. Signatures, tokens and passwords are compared in constant time. While
//! a secret is being replaced, the old one and the new one are accepted.

use base64::Engine;

use super::hmac::{Algorithm, Encoding, is_equal};
use super::secret::{BASE64, SourceSecret};
use super::verify::{HmacRule, Verify};
use super::webhook::Webhook;
use crate::domain::seconds::Seconds;

/// Why a webhook is not accepted as its sender's.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Rejection {
    #[error("the header {0} is missing")]
    Missing(String),
    #[error("the header {0} is given twice, or is not of the expected form")]
    Malformed(String),
    #[error("the timestamp is more than {0} s away from the present")]
    Stale(Seconds),
    #[error("it does not match: the secret or the body is another one")]
    Mismatch,
}

impl Rejection {
    /// Returns the word that the counts of a source show.
    pub fn as_str(&self) -> &'static str {
        match self {
            Rejection::Missing(_) => "missing",
            Rejection::Malformed(_) => "malformed",
            Rejection::Stale(_) => "stale",
            Rejection::Mismatch => "mismatch",
        }
    }
}

impl Verify {
    /// Checks that the holder of one of the secrets has sent a webhook. `now` is in seconds since 1970.
    pub(crate) fn check(&self, secrets: &[&SourceSecret], webhook: &Webhook<'_>, now: f64) -> Result<(), Rejection> {
        match self {
            Verify::Standard { tolerance } => check_standard(*tolerance, secrets, webhook, now),
            Verify::Github => HmacRule::github().check(secrets, webhook),
            Verify::Stripe { tolerance } => check_stripe(*tolerance, secrets, webhook, now),
            Verify::Slack { tolerance } => check_slack(*tolerance, secrets, webhook, now),
            Verify::Shopify => HmacRule::shopify().check(secrets, webhook),
            Verify::Hmac(rule) => rule.check(secrets, webhook),
            Verify::Basic { username } => check_basic(username, secrets, webhook),
            Verify::Token { header, prefix } => {
                let given = webhook.required_header(header)?.strip_prefix(prefix.as_str());
                let given = given.ok_or_else(|| Rejection::Malformed(header.clone()))?;
                any(secrets, |secret| is_equal(secret.as_bytes(), given.as_bytes()))
            }
            Verify::None => Ok(()),
        }
    }
}

impl HmacRule {
    fn github() -> Self {
        let (header, prefix) = ("X-Hub-Signature-256".into(), "sha256=".into());
        HmacRule { header, algorithm: Algorithm::Sha256, encoding: Encoding::Hex, prefix }
    }

    fn shopify() -> Self {
        let (header, prefix) = ("X-Shopify-Hmac-Sha256".into(), String::new());
        HmacRule { header, algorithm: Algorithm::Sha256, encoding: Encoding::Base64, prefix }
    }

    fn check(&self, secrets: &[&SourceSecret], webhook: &Webhook<'_>) -> Result<(), Rejection> {
        let given = webhook.required_header(&self.header)?.trim().strip_prefix(self.prefix.as_str());
        let given = given.and_then(|given| self.encoding.decode(given));
        let given = given.ok_or_else(|| Rejection::Malformed(self.header.clone()))?;
        any(secrets, |secret| is_equal(&self.algorithm.sign(secret.as_bytes(), &[webhook.body]), &given))
    }
}

fn check_standard(
    tolerance: Seconds,
    secrets: &[&SourceSecret],
    webhook: &Webhook<'_>,
    now: f64,
) -> Result<(), Rejection> {
    let (id, timestamp) = (webhook.required_header("webhook-id")?, webhook.required_header("webhook-timestamp")?);
    let signatures = webhook.required_header("webhook-signature")?;
    check_time("webhook-timestamp", timestamp, tolerance, now)?;
    // Signatures of other kinds are for receivers that know them.
    let given = signatures.split(' ').filter_map(|signature| BASE64.decode(signature.strip_prefix("v1,")?).ok());
    let given: Vec<Vec<u8>> = given.collect();
    let signed = format!("{id}.{timestamp}.");
    let keys: Vec<Vec<u8>> = secrets.iter().filter_map(|secret| secret.standard_key()).collect();
    any(&keys, |key| is_among(&given, &Algorithm::Sha256.sign(key, &[signed.as_bytes(), webhook.body])))
}

fn check_stripe(
    tolerance: Seconds,
    secrets: &[&SourceSecret],
    webhook: &Webhook<'_>,
    now: f64,
) -> Result<(), Rejection> {
    const HEADER: &str = "Stripe-Signature";
    let malformed = || Rejection::Malformed(HEADER.into());
    let parts = webhook.required_header(HEADER)?.split(',').filter_map(|part| part.trim().split_once('='));
    let parts: Vec<(&str, &str)> = parts.collect();
    let mut timestamps = parts.iter().filter(|(name, _)| *name == "t").map(|(_, value)| *value);
    let (Some(timestamp), None) = (timestamps.next(), timestamps.next()) else { return Err(malformed()) };
    check_time(HEADER, timestamp, tolerance, now)?;
    // Stripe asks to ignore all other schemes: they may be weaker.
    let given = parts.iter().filter(|(name, _)| *name == "v1");
    let given: Vec<Vec<u8>> = given.filter_map(|(_, value)| Encoding::Hex.decode(value)).collect();
    let signed = format!("{timestamp}.");
    any(secrets, |secret| {
        is_among(&given, &Algorithm::Sha256.sign(secret.as_bytes(), &[signed.as_bytes(), webhook.body]))
    })
}

fn check_slack(
    tolerance: Seconds,
    secrets: &[&SourceSecret],
    webhook: &Webhook<'_>,
    now: f64,
) -> Result<(), Rejection> {
    const HEADER: &str = "X-Slack-Signature";
    const TIMESTAMP: &str = "X-Slack-Request-Timestamp";
    let (given, timestamp) = (webhook.required_header(HEADER)?, webhook.required_header(TIMESTAMP)?);
    check_time(TIMESTAMP, timestamp, tolerance, now)?;
    let given = given.strip_prefix("v0=").and_then(|given| Encoding::Hex.decode(given));
    let given = given.ok_or_else(|| Rejection::Malformed(HEADER.into()))?;
    let signed = format!("v0:{timestamp}:");
    any(secrets, |secret| {
        is_equal(&Algorithm::Sha256.sign(secret.as_bytes(), &[signed.as_bytes(), webhook.body]), &given)
    })
}

fn check_basic(username: &str, secrets: &[&SourceSecret], webhook: &Webhook<'_>) -> Result<(), Rejection> {
    const HEADER: &str = "Authorization";
    let malformed = || Rejection::Malformed(HEADER.into());
    let (scheme, encoded) = webhook.required_header(HEADER)?.split_once(' ').ok_or_else(malformed)?;
    let given = Some(encoded.trim()).filter(|_| scheme.eq_ignore_ascii_case("basic"));
    let given = given.and_then(|encoded| BASE64.decode(encoded).ok()).ok_or_else(malformed)?;
    any(secrets, |secret| is_equal(format!("{username}:{}", secret.as_text()).as_bytes(), &given))
}

/// Refuses a timestamp that is too far from the present, in either direction.
fn check_time(header: &str, timestamp: &str, tolerance: Seconds, now: f64) -> Result<(), Rejection> {
    let is_number = !timestamp.is_empty() && timestamp.bytes().all(|byte| byte.is_ascii_digit());
    let seconds = timestamp.parse::<i64>().ok().filter(|_| is_number);
    let seconds = seconds.ok_or_else(|| Rejection::Malformed(header.to_owned()))?;
    if (seconds as f64 - now).abs() > tolerance.as_f64() { Err(Rejection::Stale(tolerance)) } else { Ok(()) }
}

/// Checks that one of the secrets fits.
fn any<T>(secrets: &[T], fits: impl FnMut(&T) -> bool) -> Result<(), Rejection> {
    if secrets.iter().any(fits) { Ok(()) } else { Err(Rejection::Mismatch) }
}

/// Returns whether a signature is among those that were sent.
fn is_among(given: &[Vec<u8>], expected: &[u8]) -> bool {
    given.iter().any(|given| is_equal(expected, given))
}
