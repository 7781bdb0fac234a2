//! `/problems/{code}`: the page that the `type` of a problem refers to.

use std::sync::LazyLock;

use actix_web::{HttpRequest, HttpResponse};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};

use super::code::{Code, CodeInfo, Effect};
use super::page::html;
use super::problem::Problem;
use super::query::expect_no_query;
use crate::error::Error;

const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;max-width:40rem;margin:3rem auto;padding:0 1rem;\
color-scheme:light dark}code{font-size:.95em}dt{font-weight:600;margin-top:1rem}dd{margin:0}";

/// Allows the page's own style sheet, by its hash, and nothing else.
static POLICY: LazyLock<String> = LazyLock::new(|| {
    let hash = STANDARD.encode(Sha256::digest(STYLE));
    format!(
        "default-src 'none'; style-src 'sha256-{hash}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
});

/// `GET /problems/{code}`: returns what the code means and what to do.
pub(crate) async fn get_problem_page(request: HttpRequest) -> Result<HttpResponse, Error> {
    expect_no_query(&request)?;
    let Some(code) = request.match_info().get("code").and_then(Code::parse) else {
        return Ok(Problem::new(Code::RouteNotFound, format!("there is no {}", request.path())).respond());
    };
    Ok(html(&request, &POLICY).body(page(code)))
}

/// Returns the page of a code. All of its texts come from the table of codes, in which `quoted` words are code.
fn page(code: Code) -> String {
    let CodeInfo { status, name, title, retryable, effect, meaning, advice } = code.info();
    let (meaning, advice) = (with_code_elements(meaning), with_code_elements(advice));
    let reason = code.status().canonical_reason().unwrap_or_default();
    let repeat = match (code, retryable) {
        (Code::OutcomeUnknown, _) => "Only if <code>retryable</code> is true in the response.",
        (_, true) => "Yes.",
        (_, false) => "No; it would fail again, or be without effect.",
    };
    let effect = match effect {
        Effect::None => "None: nothing was changed, and nothing will be.",
        Effect::Recorded => "What was reported is recorded.",
        Effect::Unknown => "Unknown: it may have been carried out completely, partly or not at all.",
    };
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <title>{name} · Waybill</title><style>{STYLE}</style></head>\n\
         <body><h1>{title}</h1>\n<p>{meaning}</p>\n<dl>\
         <dt>Code</dt><dd><code>{name}</code></dd>\
         <dt>Status</dt><dd>{status} {reason}</dd>\
         <dt>Effect</dt><dd>{effect}</dd>\
         <dt>May the same request be sent again?</dt><dd>{repeat}</dd>\
         <dt>What to do</dt><dd>{advice}</dd></dl>\n\
         <p><a href=\"/docs\">Documentation of the API</a></p></body></html>\n"
    )
}

/// Turns text in backquotes into `code` elements.
fn with_code_elements(text: &str) -> String {
    let parts = text.split('`').enumerate();
    parts.map(|(n, part)| if n % 2 == 1 { format!("<code>{part}</code>") } else { part.to_owned() }).collect()
}
