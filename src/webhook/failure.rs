//! Converts errors of the HTTP libraries into an error kind and a line for operators. The line contains
//! no URL because the query of a URL may contain secrets.

use std::error::Error;
use std::io;
use std::iter::successors;

use crate::domain::attempt::ErrorKind;

use super::exchange::SendError;
use super::resolver::Refused;

/// Classifies an error of a request to a receiver.
pub(super) fn classify(error: &reqwest::Error, is_https: bool) -> SendError {
    let kind = kind_of(error, is_https);
    // The innermost cause is the informative one; the outer ones only wrap it.
    let cause = causes(error).last().map(ToString::to_string).unwrap_or_default();
    let detail = match kind {
        ErrorKind::Timeout if error.is_connect() => "no connection was established in time".into(),
        ErrorKind::Timeout => format!("the receiver stopped responding: {cause}"),
        ErrorKind::Dns => format!("the name of the host could not be resolved: {cause}"),
        ErrorKind::AddressRefused => cause,
        ErrorKind::Connect => format!("no connection could be made: {cause}"),
        ErrorKind::Tls => format!("TLS failed: {cause}"),
        ErrorKind::Connection => format!("the connection broke: {cause}"),
        ErrorKind::InvalidResponse => format!("the answer is not HTTP: {cause}"),
        ErrorKind::BodyNotRenderable | ErrorKind::SecretUnreadable => format!("the request cannot be sent: {cause}"),
    };
    SendError::new(kind, &detail)
}

fn kind_of(error: &reqwest::Error, is_https: bool) -> ErrorKind {
    if find::<Refused>(error, |_| true) {
        return ErrorKind::AddressRefused;
    }
    if error.is_builder() {
        return ErrorKind::BodyNotRenderable;
    }
    if error.is_timeout() {
        return ErrorKind::Timeout;
    }
    if error.is_dns() {
        return ErrorKind::Dns;
    }
    if find::<rustls::Error>(error, |_| true) || (is_https && error.is_connect() && find(error, broke_midway)) {
        return ErrorKind::Tls;
    }
    if error.is_connect() {
        return ErrorKind::Connect;
    }
    if find(error, hyper::Error::is_parse) || find(error, is_malformed) {
        return ErrorKind::InvalidResponse;
    }
    ErrorKind::Connection
}

/// Whether an established connection was closed. During connecting, this means the TLS handshake.
fn broke_midway(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof)
}

/// Whether the framing of a body is not valid HTTP.
fn is_malformed(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput)
}

fn find<E: Error + 'static>(error: &reqwest::Error, holds: impl Fn(&E) -> bool) -> bool {
    causes(error).filter_map(|cause| cause.downcast_ref()).any(holds)
}

/// Returns the error and its chain of causes.
fn causes(error: &reqwest::Error) -> impl Iterator<Item = &(dyn Error + 'static)> {
    successors(Some(error as &(dyn Error + 'static)), |cause| cause_of(*cause))
}

/// Returns the cause of an error. The error wrapped in an I/O error is not its `source`, so it is read
/// separately.
fn cause_of<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a (dyn Error + 'static)> {
    match error.downcast_ref().and_then(io::Error::get_ref) {
        Some(wrapped) => Some(wrapped),
        None => error.source(),
    }
}
