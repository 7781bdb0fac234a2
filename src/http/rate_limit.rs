//! The limits of a publish: checks them before it, and shows the caller where its rates stand after it.
//!
//! The headers are those of the draft "RateLimit header fields for HTTP" of the IETF. A rate with a burst is shown as
//! the burst and the time in which it comes back, so that `r` never exceeds `q`.

use actix_web::HttpResponse;
use actix_web::http::header::{HeaderName, HeaderValue};

use crate::domain::publish_limits::LimitOwner;
use crate::engine::limits::{PublishPermit, RateState};

static POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
static STATE: HeaderName = HeaderName::from_static("ratelimit");

/// Returns the response to a publish that was carried out, with the headers of its rates, if it is subject to some.
pub(crate) fn with_rates(mut response: HttpResponse, permit: PublishPermit) -> HttpResponse {
    if !response.status().is_success() || permit.rates().is_empty() {
        return response;
    }
    let policy = |state: &RateState| {
        format!("\"{}\";q={};w={}", policy_name(state.owner), state.rate.burst, state.rate.burst_seconds())
    };
    let standing =
        |state: &RateState| format!("\"{}\";r={};t={}", policy_name(state.owner), state.available, state.full_in);
    for (name, item) in [(&POLICY, &policy as &dyn Fn(&RateState) -> String), (&STATE, &standing)] {
        let value = permit.rates().iter().map(item).collect::<Vec<_>>().join(", ");
        // Cannot fail: the value is ASCII.
        if let Ok(value) = HeaderValue::from_str(&value) {
            response.headers_mut().insert(name.clone(), value);
        }
    }
    response
}

fn policy_name(owner: LimitOwner) -> &'static str {
    match owner {
        LimitOwner::Namespace => "publish",
        LimitOwner::Key => "publish-key",
    }
}
