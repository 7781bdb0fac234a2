//! The login by key, the logout, and the session that lies between them. All of it works without scripts.

use actix_web::http::{StatusCode, header};
use actix_web::web::{Data, Payload};
use actix_web::{HttpRequest, HttpResponse};
use chrono::{DateTime, Utc};
use maud::{Markup, html};
use serde::Serialize;

use super::{next, plain, refusal};
use crate::domain::api_key::{ApiKey, KeyHash, SessionSecret};
use crate::domain::input::RawFields;
use crate::engine::Engine;
use crate::error::Error;
use crate::http::body::{media_type, read_without_query};
use crate::http::client_address::ClientAddress;
use crate::http::doors::{Admitted, DoorSettings, find_admission, key_hash_of, note_refusal_of};
use crate::http::problem::Problem;
use crate::http::query::{expect_no_query, read_pairs, read_query};
use crate::http::scope::own_scope;
use crate::http::session::{cookie_of, no_cookie, session_of};
use crate::http::view::Timestamp;

/// The maximum size of the body of a login or a logout.
const MAX_BODY_BYTES: usize = 16 * 1024;

const SECONDS_PER_HOUR: f64 = 3_600.0;

const NO_KEY: &str = "this is no key, or one with a typo";

/// `GET /login`: returns the page with the form, or says who has logged in already.
pub(crate) async fn get_login(engine: Data<Engine>, request: HttpRequest) -> Result<HttpResponse, Error> {
    let mut query = read_query(&request)?;
    let next = query.parse_text("next", |text| Ok(text.to_owned()));
    query.finish()?;
    let next = next::checked(next.as_deref());
    let mut response = plain::begin(&request, StatusCode::OK);
    if !engine.keys().is_required() {
        let content = html! {
            p { "This server has no API keys. Whoever reaches it may do everything, without a login." }
            p { a href=(next) { "Go on" } }
        };
        return Ok(response.body(plain::document("No login is needed", &content)));
    }
    if let Ok(admission) = find_admission(&request, &engine).await {
        let name = admission.principal().name.as_deref().unwrap_or_default();
        let content = html! {
            p { "You have logged in as " strong { (name) } "." }
            p { a href=(next) { "Go on" } }
            (logout_form())
        };
        return Ok(response.body(plain::document("Logged in", &content)));
    }
    Ok(response.body(plain::document(TITLE, &login_form(next, None))))
}

const TITLE: &str = "Log in to Waybill";

fn login_form(next: &str, problem: Option<&str>) -> Markup {
    html! {
        @if let Some(problem) = problem { p.problem #problem role="alert" { (problem) } }
        form method="post" action="/login" {
            label for="key" { "API key" }
            input #key name="key" type="password" required autofocus autocomplete="current-password" maxlength="200"
                spellcheck="false" autocapitalize="none" placeholder="wb_…"
                aria-invalid=[problem.map(|_| "true")] aria-describedby=[problem.map(|_| "problem")];
            input type="hidden" name="next" value=(next);
            button type="submit" { "Log in" }
        }
        @if next != next::HOME { p { a href=(next) { "I have logged in already" } } }
    }
}

fn logout_form() -> Markup {
    html! { form method="post" action="/logout" { button type="submit" { "Log out" } } }
}

/// A login that was asked for.
struct Login {
    key: String,
    next: Option<String>,
    /// Whether a page sent it, which wants a page.
    is_form: bool,
}

/// What a program learns about its session, besides the cookie.
#[derive(Serialize)]
struct SessionView {
    expires_at: Timestamp,
}

/// `POST /login`: gives the holder of a key a session.
pub(crate) async fn log_in(
    engine: Data<Engine>,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, Error> {
    let body = read_without_query(&request, payload, MAX_BODY_BYTES).await?;
    let Login { key, next, is_form } = read_login(&request, &body)?;
    let next = next::checked(next.as_deref());
    if !engine.keys().is_required() {
        return Ok(plain::see_other(next));
    }
    let key = ApiKey::hash_of(key.trim().as_bytes());
    match begin_session(&engine, &request, key).await {
        Ok((secret, expires_at)) => {
            let seconds = (expires_at - engine.time()).num_seconds();
            let mut response = match is_form {
                true => plain::see_other(next),
                false => HttpResponse::Ok().json(SessionView { expires_at: Timestamp(expires_at) }),
            };
            set_cookie(&mut response, cookie_of(&request, &secret, seconds))?;
            Ok(response)
        }
        Err(error) => {
            note_refusal_of(&request, key, &error);
            Ok(if is_form { refuse_login(&request, next, &error) } else { Problem::from(&error).respond() })
        }
    }
}

fn read_login(request: &HttpRequest, body: &[u8]) -> Result<Login, Error> {
    match media_type(request).to_ascii_lowercase().as_str() {
        "application/x-www-form-urlencoded" => {
            let text = std::str::from_utf8(body).map_err(|_| Error::invalid("body", "must be UTF-8"))?;
            let mut fields = read_pairs(text)?;
            let key = fields.parse_text("key", |text| Ok(text.to_owned())).unwrap_or_default();
            let next = fields.parse_text("next", |text| Ok(text.to_owned()));
            fields.finish()?;
            Ok(Login { key, next, is_form: true })
        }
        "application/json" => {
            let mut fields = RawFields::of_body(body)?;
            let key = fields.required("key", |fields, name| fields.parse_text(name, |text| Ok(text.to_owned())));
            Ok(Login { key: fields.finish_with(key)?, next: None, is_form: false })
        }
        _ => Err(Error::UnsupportedMediaType),
    }
}

/// Checks a key as the door does, and makes a session of it.
async fn begin_session(
    engine: &Engine,
    request: &HttpRequest,
    key: Option<KeyHash>,
) -> Result<(SessionSecret, DateTime<Utc>), Error> {
    let key = key.ok_or(Error::Unauthenticated(NO_KEY))?;
    let address = ClientAddress::of(request).0;
    let admission = match engine.admit_cached(Some(key))? {
        Some(admission) => admission,
        None => engine.look_up_key(key, address).await?,
    };
    let hours = request.app_data::<DoorSettings>().map_or(1, |settings| settings.session_hours);
    let scope = own_scope(engine, request, admission.principal());
    engine.begin_session(scope, key, f64::from(hours) * SECONDS_PER_HOUR).await
}

/// Returns the form again, with the reason why the login was refused.
fn refuse_login(request: &HttpRequest, next: &str, error: &Error) -> HttpResponse {
    let reason = match error {
        Error::Unauthenticated(NO_KEY) => "This is no key, or one with a typo.".to_owned(),
        Error::Unauthenticated(_) => "This key is not known.".to_owned(),
        Error::KeyExpired => "This key, or this secret of it, has expired.".to_owned(),
        Error::KeyRevoked => "This key was revoked.".to_owned(),
        Error::TooManyGuesses { retry_after } => {
            format!(
                "Too many unknown keys came from your address, or too many logins with this key. Try again in \
                 {retry_after} seconds."
            )
        }
        _ => "The key cannot be checked at the moment. Try again soon.".to_owned(),
    };
    plain::begin_refusal(request, error).body(plain::document(TITLE, &login_form(next, Some(&reason))))
}

/// `POST /logout`: ends the session of the browser, on all servers.
pub(crate) async fn log_out(
    engine: Data<Engine>,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, Error> {
    read_without_query(&request, payload, MAX_BODY_BYTES).await?;
    // A session whose request does not say which page sends it stays, as for all that has an effect.
    let session = session_of(&request).filter(|session| key_hash_of(&request) == Some(*session));
    if let Some(session) = session
        && let Err(error) = end_session(&engine, &request, session).await
    {
        // The browser keeps its cookie, to try again with.
        return Ok(refusal::refuse_page(&request, &error));
    }
    let mut response = plain::see_other("/login");
    set_cookie(&mut response, no_cookie(&request))?;
    Ok(response)
}

async fn end_session(engine: &Engine, request: &HttpRequest, session: KeyHash) -> Result<(), Error> {
    match find_admission(request, engine).await {
        Ok(admission) if admission.principal().key_id.is_some() => {
            engine.end_session(own_scope(engine, request, admission.principal()), session).await
        }
        // There is nothing to end.
        Ok(_) | Err(Error::Unauthenticated(_) | Error::KeyExpired | Error::KeyRevoked) => Ok(()),
        Err(error) => Err(error),
    }
}

fn set_cookie(response: &mut HttpResponse, cookie: String) -> Result<(), Error> {
    // Cannot fail: the text is ASCII.
    let value = header::HeaderValue::from_str(&cookie).map_err(|error| Error::Internal(error.to_string()))?;
    response.headers_mut().insert(header::SET_COOKIE, value);
    Ok(())
}

/// `GET /ui/session`: says who has logged in, and what their key allows.
pub(crate) async fn get_session(admitted: Admitted, request: HttpRequest) -> Result<HttpResponse, Error> {
    expect_no_query(&request)?;
    let principal = admitted.principal();
    let content = html! {
        dl {
            dt { "Key" }
            dd { (principal.name.as_deref().unwrap_or("none: this server is open")) }
            dt { "Scopes" }
            dd { (principal.scopes.names().join(", ")) }
        }
        @if principal.key_id.is_some() { (logout_form()) }
        p { a href=(next::HOME) { "Go to the first page" } }
    };
    Ok(plain::begin(&request, StatusCode::OK).body(plain::document("Your session", &content)))
}
