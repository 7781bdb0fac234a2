//! Extracts the [`Scope`] of a request: the namespace that it is about, and who makes it, as the door has found out.
//!
//! A request is about the namespace of its key. An administrator may name another one with the header
//! `Waybill-Namespace`. Without keys, every caller is an administrator of the namespace `default`.

use std::convert::Infallible;
use std::future::{Ready, ready};

use actix_web::http::header::{HeaderMap, HeaderName};
use actix_web::web::Data;
use actix_web::{FromRequest, HttpMessage, HttpRequest, dev};
use futures_util::FutureExt;
use futures_util::future::{Either, LocalBoxFuture};

use super::client_address::ClientAddress;
use super::doors::Admitted;
use crate::domain::api_key::{KeyScope, Principal};
use crate::domain::ids::NamespaceId;
use crate::domain::namespace::check_name;
use crate::domain::scope::Scope;
use crate::engine::Engine;
use crate::error::Error;

/// The header with which an administrator names a namespace.
pub(crate) const NAMESPACE_HEADER: &str = "Waybill-Namespace";

/// The same, as it is looked up.
static NAMESPACE: HeaderName = HeaderName::from_static("waybill-namespace");

impl FromRequest for Scope {
    type Error = Error;
    type Future = Either<Ready<Result<Self, Error>>, LocalBoxFuture<'static, Result<Self, Error>>>;

    fn from_request(request: &HttpRequest, _: &mut dev::Payload) -> Self::Future {
        match scope_of(request) {
            Ok((scope, None)) => Either::Left(ready(Ok(scope))),
            Ok((scope, Some((engine, name)))) => match engine.known_namespace(&name) {
                Some(namespace) => Either::Left(ready(Ok(Scope { namespace, ..scope }))),
                None => Either::Right(scope_of_name(engine, name, scope).boxed_local()),
            },
            Err(error) => Either::Left(ready(Err(error))),
        }
    }
}

async fn scope_of_name(engine: Data<Engine>, name: String, scope: Scope) -> Result<Scope, Error> {
    Ok(Scope { namespace: engine.find_namespace(&name).await?, ..scope })
}

/// The namespace whose turn a read takes: the one that the request is about, or that of its caller if it names none that
/// the caller may read. Pages name one in their query, and take a turn of their viewer's own namespace. `None` if the
/// caller was not admitted: then the request reads nothing of a namespace.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reader(pub Option<NamespaceId>);

impl FromRequest for Reader {
    type Error = Infallible;
    type Future = LocalBoxFuture<'static, Result<Self, Infallible>>;

    fn from_request(request: &HttpRequest, payload: &mut dev::Payload) -> Self::Future {
        let own = request.extensions().get::<Admitted>().map(|admitted| admitted.principal().namespace);
        let named = Scope::from_request(request, payload);
        async move {
            let Some(own) = own else { return Ok(Reader(None)) };
            Ok(Reader(Some(named.await.map_or(own, |scope| scope.namespace))))
        }
        .boxed_local()
    }
}

/// A namespace that a request names, and where to look it up.
type NamedNamespace = (Data<Engine>, String);

/// Returns the scope of a request in the namespace of its caller, and the name of another namespace if the request
/// names one.
fn scope_of(request: &HttpRequest) -> Result<(Scope, Option<NamedNamespace>), Error> {
    let engine = request.app_data::<Data<Engine>>();
    let engine = engine.ok_or_else(|| Error::Internal("the server has no engine".into()))?;
    let extensions = request.extensions();
    let admitted = extensions.get::<Admitted>();
    let principal = admitted.ok_or_else(|| Error::Internal("a request was not admitted".into()))?.principal();
    let scope = own_scope(engine, request, principal);
    let named = named_namespace(request.headers())?;
    if named.is_some() {
        check_may_name(principal)?;
    }
    Ok((scope, named.map(|name| (engine.clone(), name))))
}

/// Returns the scope of a request in the namespace of its caller.
pub(crate) fn own_scope(engine: &Engine, request: &HttpRequest, principal: &Principal) -> Scope {
    let ClientAddress(address) = ClientAddress::of(request);
    Scope { namespace: principal.namespace, actor: principal.name.clone(), address, now: engine.now() }
}

/// Checks that a caller may name a namespace. Whether it exists does not show.
pub(crate) fn check_may_name(principal: &Principal) -> Result<(), Error> {
    if principal.scopes.allow(KeyScope::Admin) { Ok(()) } else { Err(Error::ScopeMissing(KeyScope::Admin)) }
}

/// Returns the namespace that a request names, if it names one.
fn named_namespace(headers: &HeaderMap) -> Result<Option<String>, Error> {
    let mut values = headers.get_all(&NAMESPACE);
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(Error::invalid(NAMESPACE_HEADER, "must be given once"));
    }
    let name = value.to_str().unwrap_or_default();
    check_name(name).map_err(|reason| Error::invalid(NAMESPACE_HEADER, reason))?;
    Ok(Some(name.to_owned()))
}
