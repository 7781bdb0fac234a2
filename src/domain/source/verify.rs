//! The schemes by which senders prove that a webhook is theirs, and their settings. [`super::check`] applies them.

use serde_json::{Map, Value, json};

use super::hmac::{Algorithm, Encoding};
use super::secret::SourceSecret;
use super::value_from::check_header_name;
use crate::domain::input::Fields;
use crate::domain::invalid::Invalid;
use crate::domain::seconds::Seconds;
use crate::domain::{limits, text};

/// A scheme, with its settings.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Verify {
    /// Standard Webhooks 1.0.
    Standard {
        tolerance: Seconds,
    },
    Github,
    Stripe {
        tolerance: Seconds,
    },
    Slack {
        tolerance: Seconds,
    },
    Shopify,
    /// A signature of the body in a header.
    Hmac(HmacRule),
    /// A user name and a password.
    Basic {
        username: String,
    },
    /// The secret itself in a header.
    Token {
        header: String,
        prefix: String,
    },
    /// Whoever knows the URL may send.
    None,
}

/// Where the HMAC of a body is, and of which kind.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct HmacRule {
    pub(super) header: String,
    pub(super) algorithm: Algorithm,
    pub(super) encoding: Encoding,
    /// The text before the signature.
    pub(super) prefix: String,
}

const SCHEMES: &str = "standard, github, stripe, slack, shopify, hmac, basic, token, none";

/// The headers in which secrets are sent, whatever the scheme is.
const SECRET_HEADERS: [&str; 3] = ["authorization", "proxy-authorization", "cookie"];

/// The settings of all schemes.
const SETTINGS: [&str; 6] = ["header", "algorithm", "encoding", "prefix", "tolerance_seconds", "username"];

impl Verify {
    /// Returns whether this header of a webhook carries a secret.
    pub(super) fn has_secret_in(&self, name: &str) -> bool {
        let is_token = matches!(self, Verify::Token { header, .. } if header.eq_ignore_ascii_case(name));
        is_token || SECRET_HEADERS.iter().any(|header| header.eq_ignore_ascii_case(name))
    }

    /// Parses a scheme with its settings, and refuses those of other schemes.
    pub(super) fn parse(object: &Map<String, Value>) -> Result<Self, Vec<Invalid>> {
        let mut fields = Fields::of_object(object);
        let scheme: Option<String> =
            fields.required("scheme", |fields, name| fields.value(name, &format!("one of {SCHEMES}")));
        let verify = match scheme.as_deref() {
            Some("standard") => Some(Verify::Standard { tolerance: take_tolerance(&mut fields) }),
            Some("github") => Some(Verify::Github),
            Some("stripe") => Some(Verify::Stripe { tolerance: take_tolerance(&mut fields) }),
            Some("slack") => Some(Verify::Slack { tolerance: take_tolerance(&mut fields) }),
            Some("shopify") => Some(Verify::Shopify),
            Some("hmac") => Some(Verify::Hmac(HmacRule {
                header: take_header(&mut fields),
                algorithm: fields.choice("algorithm", Algorithm::parse, Algorithm::NAMES).unwrap_or_default(),
                encoding: fields.choice("encoding", Encoding::parse, Encoding::NAMES).unwrap_or_default(),
                prefix: take_prefix(&mut fields),
            })),
            Some("basic") => Some(Verify::Basic { username: take_username(&mut fields) }),
            Some("token") => Some(Verify::Token { header: take_header(&mut fields), prefix: take_prefix(&mut fields) }),
            Some("none") => Some(Verify::None),
            Some(_) => {
                fields.refuse("scheme", format!("must be one of {SCHEMES}"));
                None
            }
            None => None,
        };
        for name in SETTINGS {
            if fields.take(name).is_some() && verify.is_some() {
                fields.refuse(name, "is not a setting of this scheme");
            }
        }
        fields.finish_object()?;
        verify.ok_or_else(|| vec![Invalid::new("scheme", "is required")])
    }

    /// Returns the name of the scheme.
    pub(crate) fn scheme(&self) -> &'static str {
        match self {
            Verify::Standard { .. } => "standard",
            Verify::Github => "github",
            Verify::Stripe { .. } => "stripe",
            Verify::Slack { .. } => "slack",
            Verify::Shopify => "shopify",
            Verify::Hmac(_) => "hmac",
            Verify::Basic { .. } => "basic",
            Verify::Token { .. } => "token",
            Verify::None => "none",
        }
    }

    /// Returns every setting, with `null` for those that the scheme does not have.
    pub(super) fn to_json(&self) -> Value {
        let mut json = json!({
            "scheme": self.scheme(), "header": null, "algorithm": null, "encoding": null, "prefix": null,
            "tolerance_seconds": null, "username": null,
        });
        match self {
            Verify::Standard { tolerance } | Verify::Stripe { tolerance } | Verify::Slack { tolerance } => {
                json["tolerance_seconds"] = json!(tolerance);
            }
            Verify::Hmac(HmacRule { header, algorithm, encoding, prefix }) => {
                json["header"] = json!(header);
                json["algorithm"] = json!(algorithm.as_str());
                json["encoding"] = json!(encoding.as_str());
                json["prefix"] = json!(prefix);
            }
            Verify::Token { header, prefix } => {
                json["header"] = json!(header);
                json["prefix"] = json!(prefix);
            }
            Verify::Basic { username } => json["username"] = json!(username),
            Verify::Github | Verify::Shopify | Verify::None => {}
        }
        json
    }

    /// Parses a secret for this scheme. The error is the reason for refusal, and does not contain the secret.
    pub(crate) fn parse_secret(&self, given: &str) -> Result<SourceSecret, String> {
        match self {
            Verify::Standard { .. } => SourceSecret::parse_standard(given),
            Verify::Token { .. } if !given.bytes().all(|byte| matches!(byte, b'!'..=b'~')) => {
                Err("must be visible ASCII characters, since it comes in a header".into())
            }
            Verify::None => Err("is not used by the scheme none".into()),
            _ => SourceSecret::parse(given),
        }
    }

    pub(crate) fn needs_secret(&self) -> bool {
        *self != Verify::None
    }
}

/// The fields of a scheme.
type SchemeFields<'a> = Fields<'a, &'a Value>;

fn take_tolerance(fields: &mut SchemeFields<'_>) -> Seconds {
    let given = fields.seconds_within("tolerance_seconds", limits::TOLERANCE_SECONDS);
    given.unwrap_or(Seconds::whole(limits::DEFAULT_TOLERANCE_SECONDS))
}

fn take_header(fields: &mut SchemeFields<'_>) -> String {
    let header = fields.required("header", |fields, name| {
        fields.parse_text(name, |header| check_header_name(header).map(|()| header.to_owned()))
    });
    header.unwrap_or_default()
}

fn take_prefix(fields: &mut SchemeFields<'_>) -> String {
    let is_fine = |text: &str| text.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    let prefix = fields.parse_text("prefix", |prefix| {
        text::check_optional(prefix, limits::SIGNATURE_PREFIX_CHARS)?;
        if is_fine(prefix) { Ok(prefix.to_owned()) } else { Err("must be ASCII characters".into()) }
    });
    prefix.unwrap_or_default()
}

fn take_username(fields: &mut SchemeFields<'_>) -> String {
    let username = fields.required("username", |fields, name| {
        fields.parse_text(name, |username| {
            text::check(username, limits::USERNAME_CHARS)?;
            if username.contains(':') { Err("must not contain a colon".into()) } else { Ok(username.to_owned()) }
        })
    });
    username.unwrap_or_default()
}
