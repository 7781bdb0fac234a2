//! The doors: which scope each endpoint needs, and the one place that checks it.
//!
//! Every line of [`super::routes`] names its [`Door`]; without one it does not compile. [`guarded`] puts the check
//! in front of a handler, before anything of the request but its head is read. A request that is let in carries its
//! [`Admission`], from which handlers take the caller: as a [`Scope`](crate::domain::scope::Scope), or as
//! [`Admitted`].
//!
//! A program sends its key in `Authorization`. A browser sends the cookie of its session ([`super::session`]), which
//! counts if there is no `Authorization`. [`guarded_page`] is the door of pages: who may not enter is led to the login, or
//! reads why.

use std::future::{Ready, ready};
use std::sync::Arc;

use actix_web::body::BoxBody;
use actix_web::http::{Method, header};
use actix_web::web::{Data, Payload};
use actix_web::{FromRequest, Handler, HttpMessage, HttpRequest, HttpResponse, Responder, dev};

use super::browser::{has_effect, names_its_page};
use super::client_address::ClientAddress;
use super::dashboard::refusal::refuse_page;
use super::problem::code_of;
use super::session::session_of;
use crate::domain::api_key::{ApiKey, KeyHash, KeyScope, Principal};
use crate::domain::ids::NamespaceId;
use crate::engine::Engine;
use crate::engine::keys::Admission;
use crate::engine::refused_calls::RefusedCall;
use crate::error::Error;

/// Who may call an endpoint: anybody, or the holders of keys with a scope.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Door {
    Open,
    Publish,
    Work,
    Read,
    Operate,
    Admin,
    /// `read`, unless the server runs with `--open-metrics`.
    Metrics,
}

impl Door {
    /// Returns the scope that a key needs, or `None` if no key is needed.
    pub fn scope(self) -> Option<KeyScope> {
        match self {
            Door::Open => None,
            Door::Publish => Some(KeyScope::Publish),
            Door::Work => Some(KeyScope::Work),
            Door::Read | Door::Metrics => Some(KeyScope::Read),
            Door::Operate => Some(KeyScope::Operate),
            Door::Admin => Some(KeyScope::Admin),
        }
    }
}

/// What the flags of the server say about doors.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DoorSettings {
    pub open_metrics: bool,
    /// For how long a session lasts.
    pub session_hours: u32,
}

/// Returns a handler that lets a request through to `handler` if its key allows that.
pub(crate) fn guarded<F, Args>(
    door: Door,
    handler: F,
) -> impl Handler<(HttpRequest, Payload), Output = HttpResponse<BoxBody>>
where
    F: Handler<Args, Output: Responder + 'static>,
    Args: FromRequest + 'static,
{
    move |request: HttpRequest, payload: Payload| {
        let handler = handler.clone();
        async move {
            if let Some(scope) = scope_needed(&request, door)
                && let Err(error) = admit(&request, scope).await
            {
                note_refusal(&request, &error);
                return HttpResponse::from_error(error);
            }
            let mut payload = payload.into_inner();
            let response = match Args::from_request(&request, &mut payload).await {
                Ok(args) => handler.call(args).await.respond_to(&request).map_into_boxed_body(),
                Err(error) => HttpResponse::from_error(error.into()),
            };
            // What a key does not allow may show late: its tags are compared with those in the body.
            if let Some(error) = response.error().and_then(|error| error.as_error::<Error>()) {
                note_refusal(&request, error);
            }
            kept_private(&request, response)
        }
    }
}

/// Returns the handler of a page, which lets a request through to `handler` if its session allows that. Otherwise the
/// response is a page too: the login, or what is missing.
///
/// It repeats lines of [`guarded`] on purpose: a function that both await would hold the request twice, and every request
/// would carry that size.
pub(crate) fn guarded_page<F, Args>(
    door: Door,
    handler: F,
) -> impl Handler<(HttpRequest, Payload), Output = HttpResponse<BoxBody>>
where
    F: Handler<Args, Output: Responder + 'static>,
    Args: FromRequest + 'static,
{
    move |request: HttpRequest, payload: Payload| {
        let handler = handler.clone();
        async move {
            if let Some(scope) = scope_needed(&request, door)
                && let Err(error) = admit(&request, scope).await
            {
                // Somebody who has not logged in yet has not tried anything.
                if key_hash_of(&request).is_some() {
                    note_refusal(&request, &error);
                }
                return refuse_page(&request, &error);
            }
            let mut payload = payload.into_inner();
            let response = match Args::from_request(&request, &mut payload).await {
                Ok(args) => handler.call(args).await.respond_to(&request).map_into_boxed_body(),
                Err(error) => HttpResponse::from_error(error.into()),
            };
            match response.error().and_then(|error| error.as_error::<Error>()) {
                Some(error) => {
                    note_refusal(&request, error);
                    refuse_page(&request, error)
                }
                None => kept_private(&request, response),
            }
        }
    }
}

/// Has browsers keep no copy of what was shown in a session: somebody else may use them after the logout.
fn kept_private(request: &HttpRequest, mut response: HttpResponse) -> HttpResponse {
    let headers = request.headers();
    let may_have_session = headers.contains_key(header::COOKIE) && !headers.contains_key(header::AUTHORIZATION);
    if may_have_session && !response.headers().contains_key(header::CACHE_CONTROL) {
        response.headers_mut().insert(header::CACHE_CONTROL, header::HeaderValue::from_static("no-store"));
    }
    response
}

/// Counts a call that was refused because of its key, for the audit log. An outage is nobody's fault.
fn note_refusal(request: &HttpRequest, error: &Error) {
    note_refusal_of(request, key_hash_of(request), error);
}

/// The same, for a key that is not where keys usually are.
pub(crate) fn note_refusal_of(request: &HttpRequest, key: Option<KeyHash>, error: &Error) {
    let is_about_the_key = matches!(
        error,
        Error::Unauthenticated(_)
            | Error::KeyExpired
            | Error::KeyRevoked
            | Error::ScopeMissing(_)
            | Error::TagNotAllowed(_)
            | Error::TooManyGuesses { .. }
    );
    if let Some(engine) = request.app_data::<Data<Engine>>().filter(|_| is_about_the_key) {
        let admitted = request.extensions().get::<Admitted>().cloned();
        // A key that has ended was not let in, but its holder is known.
        let admitted = admitted.or_else(|| engine.holder_of(key?).map(Admitted));
        let principal = admitted.as_ref().map(Admitted::principal);
        let call = RefusedCall {
            namespace: principal.map_or(NamespaceId::DEFAULT, |principal| principal.namespace),
            actor: principal.and_then(|principal| principal.name.clone()),
            address: ClientAddress::of(request).0,
            reason: code_of(error).name(),
        };
        engine.refused_calls().note(call, engine.time());
    }
}

fn scope_needed(request: &HttpRequest, door: Door) -> Option<KeyScope> {
    let is_open = |settings: &DoorSettings| door == Door::Metrics && settings.open_metrics;
    match request.app_data::<DoorSettings>() {
        Some(settings) if is_open(settings) => None,
        _ => door.scope(),
    }
}

/// Finds out who sends a request, and whether they may. Usually this costs no query and does not wait.
async fn admit(request: &HttpRequest, scope: KeyScope) -> Result<(), Error> {
    let admission = find_admission(request, engine_of(request)?).await?;
    let is_allowed = admission.principal().scopes.allow(scope);
    request.extensions_mut().insert(Admitted(admission));
    if is_allowed { Ok(()) } else { Err(Error::ScopeMissing(scope)) }
}

/// Checks that the key of a request is still good, now that its body has arrived: a client may take its time with
/// that, and the key may have been revoked meanwhile.
pub(crate) async fn admit_again(request: &HttpRequest) -> Result<(), Error> {
    let Some(Admitted(admission)) = request.extensions().get::<Admitted>().cloned() else { return Ok(()) };
    let engine = engine_of(request)?;
    if !admission.check_again(engine.time())? {
        // Boxed, because it is rare. What a key allows never changes, so its scopes need no second look.
        Box::pin(find_admission(request, engine)).await?;
    }
    Ok(())
}

fn engine_of(request: &HttpRequest) -> Result<&Data<Engine>, Error> {
    request.app_data::<Data<Engine>>().ok_or_else(|| Error::Internal("the server has no engine".into()))
}

/// Returns what a request is admitted with.
pub(crate) async fn find_admission(request: &HttpRequest, engine: &Engine) -> Result<Arc<Admission>, Error> {
    let (hash, refusal) = match read_key(request) {
        SentKey::None => (None, None),
        SentKey::Key(hash) => (Some(hash), None),
        SentKey::Garbage => (None, Some(GARBAGE)),
        SentKey::SessionOfUnknownPage => (None, Some(UNKNOWN_PAGE)),
    };
    match (engine.admit_cached(hash), hash) {
        (Err(Error::Unauthenticated(reason)), _) => Err(Error::Unauthenticated(refusal.unwrap_or(reason))),
        (Ok(None), Some(hash)) => {
            // Boxed, because it is rare, and every request would carry its size.
            Box::pin(engine.look_up_key(hash, ClientAddress::of(request).0)).await
        }
        (admission, _) => admission?.ok_or_else(|| Error::Internal("a request without a key was not decided".into())),
    }
}

const GARBAGE: &str = "Authorization must be Bearer and an API key; this is no key, or one with a typo";
const UNKNOWN_PAGE: &str = "a session cannot write in a browser that sends neither Origin nor Sec-Fetch-Site";

/// The credentials of a request.
enum SentKey {
    None,
    /// A key, or a session.
    Key(KeyHash),
    /// Something that is no key, or one with a typo.
    Garbage,
    /// A session in a request that writes and does not say which page sends it. It may be a page of another site, if the
    /// browser knows neither `SameSite` nor the headers that tell.
    SessionOfUnknownPage,
}

/// Returns the hash of the key that a request carries, if it is one.
pub(crate) fn key_hash_of(request: &HttpRequest) -> Option<KeyHash> {
    match read_key(request) {
        SentKey::Key(hash) => Some(hash),
        SentKey::None | SentKey::Garbage | SentKey::SessionOfUnknownPage => None,
    }
}

fn read_key(request: &HttpRequest) -> SentKey {
    let mut values = request.headers().get_all(header::AUTHORIZATION);
    let Some(value) = values.next() else { return read_session(request) };
    let key = value.as_bytes().split_at_checked(SCHEME.len());
    let key = key.filter(|(scheme, _)| scheme.eq_ignore_ascii_case(SCHEME));
    match key.and_then(|(_, key)| ApiKey::hash_of(key.trim_ascii())) {
        Some(hash) if values.next().is_none() => SentKey::Key(hash),
        _ => SentKey::Garbage,
    }
}

const SCHEME: &[u8] = b"bearer ";

/// Reads the session of a browser. A cookie that is no session is as good as none. No session claims by `GET`: a link
/// would do it, and browsers follow links with cookies.
fn read_session(request: &HttpRequest) -> SentKey {
    match session_of(request) {
        Some(_) if has_effect(request) && (is_get(request) || !names_its_page(request)) => {
            SentKey::SessionOfUnknownPage
        }
        Some(hash) => SentKey::Key(hash),
        None => SentKey::None,
    }
}

fn is_get(request: &HttpRequest) -> bool {
    request.method() == Method::GET
}

/// The admission of a request, for handlers.
#[derive(Clone)]
pub(crate) struct Admitted(pub Arc<Admission>);

impl Admitted {
    pub(crate) fn principal(&self) -> &Principal {
        self.0.principal()
    }
}

impl FromRequest for Admitted {
    type Error = Error;
    type Future = Ready<Result<Self, Error>>;

    fn from_request(request: &HttpRequest, _: &mut dev::Payload) -> Self::Future {
        let admitted = request.extensions().get::<Admitted>().cloned();
        ready(admitted.ok_or_else(|| Error::Internal("a request was not admitted".into())))
    }
}

#[cfg(test)]
mod tests {
    use actix_web::test::TestRequest;
    use futures_util::FutureExt as _;

    use super::*;
    use crate::http::{claims, publish, work};

    /// Returns the size of the future of a request.
    fn size_of_request<F, Args>(door: Door, handler: F) -> usize
    where
        F: Handler<Args, Output: Responder + 'static>,
        Args: FromRequest + 'static,
    {
        let request = TestRequest::default().to_http_request();
        let payload = Payload::extract(&request).now_or_never().expect("at once").expect("a payload");
        std::mem::size_of_val(&guarded(door, handler).call((request, payload)))
    }

    /// A future is allocated for each request and moved a few times. What is rare, and large, is boxed: when publishing
    /// had a future of 4 KB, the allocator returned its memory to the system and fetched it again for every batch.
    #[test]
    fn the_futures_of_frequent_requests_are_small() {
        assert!(size_of_request(Door::Publish, publish::publish_event) <= 1_536);
        assert!(size_of_request(Door::Publish, publish::publish_events) <= 1_536);
        assert!(size_of_request(Door::Work, work::complete_event) <= 1_536);
        assert!(size_of_request(Door::Work, claims::claim_event) <= 2_048);
        assert!(size_of_request(Door::Work, claims::claim_events) <= 2_048);
    }
}
