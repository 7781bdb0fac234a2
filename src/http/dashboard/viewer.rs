//! Who looks at a page, and at which namespace.

use std::borrow::Cow;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use actix_web::http::header;
use actix_web::web::Data;
use actix_web::{FromRequest, HttpRequest, dev};

use super::filter_line;
use super::parts::with_parameter;
use crate::domain::api_key::{KeyScope, Principal};
use crate::domain::input::QueryValue;
use crate::domain::limits;
use crate::domain::namespace::check_name;
use crate::domain::scope::Scope;
use crate::engine::Engine;
use crate::engine::namespaces::NamespaceList;
use crate::error::Error;
use crate::http::doors::Admitted;
use crate::http::query::{Query, read_pairs};
use crate::http::scope::{NAMESPACE_HEADER, check_may_name, own_scope};
use crate::http::session::is_over_tls;

/// The address in commands if a request does not say under which name it has reached this server.
const UNKNOWN_HOST: &str = "localhost:8080";

/// A request for a page: its parameters, who makes it, and the namespace that it is about.
pub(crate) struct Viewer {
    pub(super) engine: Data<Engine>,
    pub(super) scope: Scope,
    pub(super) principal: Principal,
    /// The namespace that an administrator has chosen, as the parameter `namespace`.
    pub(super) namespace: Option<String>,
    /// The path and the query of the page, for links to it.
    pub(super) address: String,
    /// The namespaces that an administrator may switch to.
    pub(super) namespaces: Option<Arc<NamespaceList>>,
    origin: String,
    query: Option<Query>,
}

impl Viewer {
    /// Returns the parameters of the page, once.
    pub(super) fn take_query(&mut self) -> Query {
        self.query.take().unwrap_or_else(|| Query::new([]))
    }

    /// Returns the parameters of the page, once, in which `since` and `until` may be ages such as `24h`. The address of
    /// the page then has the times instead: a cursor belongs to them, and an age is another time with every second.
    pub(super) fn take_query_with_ages(&mut self) -> Query {
        let now = self.engine.time();
        let (_, query) = self.address.split_once('?').unwrap_or((&self.address, ""));
        let given: Vec<(String, String)> = url::form_urlencoded::parse(query.as_bytes()).into_owned().collect();
        for (name, value) in given.iter().filter(|(name, _)| name == "since" || name == "until") {
            if let Some(time) = filter_line::time(value, now) {
                self.address = with_parameter(&self.address, name, &time);
            }
        }
        let is_own = |(name, value): &(String, String)| name != "namespace" && !value.is_empty();
        let time_of = |(name, value): (String, String)| {
            let is_time = name == "since" || name == "until";
            let time = is_time.then(|| filter_line::time(&value, now)).flatten();
            (Cow::from(name), QueryValue(time.unwrap_or(value)))
        };
        self.query = None;
        Query::new(given.into_iter().filter(is_own).map(time_of))
    }

    pub(super) fn may(&self, scope: KeyScope) -> bool {
        self.principal.scopes.allow(scope)
    }

    pub(super) fn may_operate(&self) -> bool {
        self.may(KeyScope::Operate)
    }

    pub(super) fn may_reveal(&self) -> bool {
        self.principal.may_reveal()
    }

    /// Returns whether keys are required, so the viewer has logged in.
    pub(super) fn has_logged_in(&self) -> bool {
        self.principal.key_id.is_some()
    }

    /// Returns the path of a page in the namespace that the viewer looks at.
    pub(super) fn link(&self, path: &str) -> String {
        let Some(namespace) = &self.namespace else { return path.to_owned() };
        let separator = if path.contains('?') { '&' } else { '?' };
        // A name of a namespace needs no escapes.
        format!("{path}{separator}namespace={namespace}")
    }

    /// Returns the address of this server as the viewer reaches it, such as `https://waybill.example`.
    pub(super) fn origin(&self) -> &str {
        &self.origin
    }

    /// Returns a command for the shell that sends a request to this server, in the namespace that the viewer looks at.
    pub(super) fn curl(&self, method: &str, path: &str, body: Option<&str>) -> String {
        let quoted = |text: &str| format!("'{}'", text.replace('\'', "'\\''"));
        let verb = if method == "GET" { String::new() } else { format!("-X {method} ") };
        let mut command = format!("curl {verb}{}", quoted(&format!("{}{path}", self.origin)));
        if self.has_logged_in() {
            command.push_str(" \\\n     -H \"Authorization: Bearer $WAYBILL_KEY\"");
        }
        if let Some(namespace) = &self.namespace {
            command.push_str(&format!(" \\\n     -H '{NAMESPACE_HEADER}: {namespace}'"));
        }
        if let Some(body) = body {
            command.push_str(&format!(" \\\n     -H 'Content-Type: application/json' \\\n     -d {}", quoted(body)));
        }
        command
    }
}

/// Returns the address under which a request has reached this server. What a proxy says about TLS is believed only if
/// the proxy is trusted; the name is that of the request itself.
fn origin_of(request: &HttpRequest) -> String {
    let named = request.uri().authority().map(actix_web::http::uri::Authority::as_str);
    let host = named.or_else(|| request.headers().get(header::HOST)?.to_str().ok());
    // It becomes part of commands that people copy into their shells.
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-:[]_".contains(&byte);
    let host = host.filter(|host| !host.is_empty() && host.bytes().all(is_plain)).unwrap_or(UNKNOWN_HOST);
    format!("{}://{host}", if is_over_tls(request) { "https" } else { "http" })
}

impl FromRequest for Viewer {
    type Error = Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self, Error>>>>;

    fn from_request(request: &HttpRequest, _: &mut dev::Payload) -> Self::Future {
        let request = request.clone();
        Box::pin(async move { viewer_of(&request).await })
    }
}

/// Returns whether a parameter has no value.
fn is_empty(pair: &str) -> bool {
    pair.split_once('=').is_some_and(|(_, value)| value.is_empty())
}

async fn viewer_of(request: &HttpRequest) -> Result<Viewer, Error> {
    let engine = request.app_data::<Data<Engine>>().cloned();
    let engine = engine.ok_or_else(|| Error::Internal("the server has no engine".into()))?;
    let Admitted(admission) = Admitted::extract(request).await?;
    let principal = admission.principal().clone();
    // A form sends its empty fields, too.
    let filled: Vec<&str> = request.query_string().split('&').filter(|pair| !is_empty(pair)).collect();
    let mut query = read_pairs(&filled.join("&"))?;
    let namespace = query.text("namespace", limits::NAME_CHARS);
    let mut scope = own_scope(&engine, request, &principal);
    if let Some(name) = &namespace {
        check_may_name(&principal)?;
        check_name(name).map_err(|reason| Error::invalid("namespace", reason))?;
        scope.namespace = match engine.known_namespace(name) {
            Some(namespace) => namespace,
            None => engine.find_namespace(name).await?,
        };
    }
    let address = request.uri().path_and_query().map_or("/", |address| address.as_str()).to_owned();
    let namespaces = match principal.scopes.allow(KeyScope::Admin) {
        true => Some(engine.listed_namespaces().await?),
        false => None,
    };
    let origin = origin_of(request);
    Ok(Viewer { engine, scope, principal, namespace, address, namespaces, origin, query: Some(query) })
}

#[cfg(test)]
mod tests {
    use actix_web::test::TestRequest;

    use super::*;

    #[test]
    fn the_address_in_commands_is_that_of_the_request_and_nothing_else() {
        let origin =
            |host: &str| origin_of(&TestRequest::default().insert_header((header::HOST, host)).to_http_request());
        assert_eq!(origin("waybill.example:8080"), "http://waybill.example:8080");
        assert_eq!(origin("[::1]:80"), "http://[::1]:80");
        for hostile in ["a'b", "a b", "$(x)", "a;b", "a/b", ""] {
            assert_eq!(origin(hostile), "http://localhost:8080", "{hostile}");
        }
    }
}
