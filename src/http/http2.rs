//! HTTP/2, over TLS.
//!
//! actix-http has HTTP/2 as well, but over a version of `h2` with a known vulnerability, without limits,
//! and with handlers that go on when their client has gone (docs/decisions/0025). So hyper serves the
//! connection here, and each of its requests is handed to the same application as those of HTTP/1.
//!
//! Many requests share a connection. hyper drops the handler of a request when the client resets the
//! request, or when the connection ends: a worker that hangs up while it waits claims nothing. The
//! kernel's acknowledgements (see [`super::sent_claims`]) say nothing about a single request here. A claim
//! counts as delivered once hyper asks for more after the last bytes of its response, which it does when the client's
//! window has let it send them.
//!
//! A client may read the connection and yet accept no bytes of a response, by flow control. hyper then takes no
//! more than one further slice of its body, so a request whose response makes no progress is dropped and reset ([`Sending`]).

use std::cell::Cell;
use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use actix_http::error::PayloadError;
use actix_http::{BoxedPayloadStream, Payload};
use actix_service::Service;
use actix_web::HttpResponse;
use actix_web::body::{BodySize, BoxBody, MessageBody};
use actix_web::dev::ServiceResponse;
use actix_web::http::{Method, Version, header};
use bytes::Bytes;
use futures_util::stream;
use http_body::{Body as _, Frame, SizeHint};
use hyper::body::Incoming;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::time::{Instant, Sleep, sleep, sleep_until};

use super::client_socket::WRITE_TIMEOUT;
use super::client_stream::ClientStream;
use super::sliced_body::SLICE;

/// The maximum number of requests of one connection that are handled at once; the client waits with more.
const MAX_CONCURRENT_STREAMS: u32 = 100;

/// The maximum number of bytes of a request's head, with 32 for each header.
const MAX_HEAD_BYTES: u32 = 64 * 1024;

/// The maximum number of bytes of one response that wait to be sent.
const MAX_SEND_BUFFER: usize = 64 * 1024;

/// The number of bytes of a request that a client may send before the server reads them: of one request,
/// and of all requests of a connection.
const STREAM_WINDOW: u32 = 64 * 1024;
const CONNECTION_WINDOW: u32 = 1024 * 1024;

/// The maximum number of requests that a client may reset before the server has looked at them.
const MAX_PENDING_RESETS: usize = 20;

/// The time between two pings, by which the server notices that a client has vanished.
const PING_INTERVAL: Duration = Duration::from_secs(20);

/// The time within which a ping must be answered.
const PING_TIMEOUT: Duration = Duration::from_secs(10);

/// The time after which a connection without requests is closed.
const IDLE_TIMEOUT: Duration = Duration::from_secs(75);

/// A request of the application.
pub(crate) type AppRequest = actix_http::Request<BoxedPayloadStream>;

/// How long a connection waits for its client.
#[derive(Clone, Copy)]
pub(crate) struct Timeouts {
    /// For the next request.
    pub idle: Duration,
    /// For the client to accept further bytes of a response.
    pub write: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Timeouts { idle: IDLE_TIMEOUT, write: WRITE_TIMEOUT }
    }
}

tokio::task_local! {
    /// The response of the request that is being handled.
    static SENDING: Rc<Sending>;
}

/// Serves a connection until it ends, until it has been without requests for too long, or until `stopping` is
/// ready and its requests are answered.
pub(crate) async fn serve<S, B>(
    stream: ClientStream,
    peer: Option<SocketAddr>,
    app: Rc<S>,
    timeouts: Timeouts,
    stopping: impl Future<Output = ()>,
) -> hyper::Result<()>
where
    S: Service<AppRequest, Response = ServiceResponse<B>, Error = actix_web::Error> + 'static,
    B: MessageBody + 'static,
{
    let usage = Rc::new(Usage::default());
    let service = hyper::service::service_fn({
        let usage = usage.clone();
        move |request| {
            let (app, in_use) = (app.clone(), usage.begin());
            async move {
                let response = respond(app, request, peer).await;
                let sending = SENDING.try_with(Rc::clone).ok();
                Ok::<_, Infallible>(response.map(|body| body.begin(in_use, sending)))
            }
        }
    });
    let mut connection = pin!(builder(timeouts.write).serve_connection(TokioIo::new(stream), service));
    tokio::select! {
        outcome = connection.as_mut() => return outcome,
        () = stopping => {}
        () = usage.until_idle(timeouts.idle) => {
            connection.as_mut().graceful_shutdown();
            usage.idle_since.set(Instant::now());
            // Requests that the client has sent before it knew are still served. What is left otherwise are the last
            // bytes of responses, which the client may never accept.
            return tokio::select! {
                outcome = connection => outcome,
                () = usage.until_idle(timeouts.write) => Ok(()),
            };
        }
    }
    connection.as_mut().graceful_shutdown();
    connection.await
}

fn builder(write_timeout: Duration) -> hyper::server::conn::http2::Builder<LocalExecutor> {
    let mut builder = hyper::server::conn::http2::Builder::new(LocalExecutor { write_timeout });
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_CONCURRENT_STREAMS)
        .max_header_list_size(MAX_HEAD_BYTES)
        .max_send_buf_size(MAX_SEND_BUFFER)
        .max_pending_accept_reset_streams(MAX_PENDING_RESETS)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT);
    builder
}

/// Runs the requests of a connection on its own thread.
#[derive(Clone)]
struct LocalExecutor {
    write_timeout: Duration,
}

impl<F: Future<Output: 'static> + 'static> hyper::rt::Executor<F> for LocalExecutor {
    fn execute(&self, request: F) {
        let watched =
            Watched { request: Box::pin(request), sending: Rc::default(), deadline: None, timeout: self.write_timeout };
        actix_web::rt::spawn(watched);
    }
}

/// How far a response has been sent.
#[derive(Default)]
struct Sending {
    /// The number of times that hyper has asked for bytes of the body.
    asked: Cell<u64>,
    /// Whether hyper has bytes that wait for the client, and not the body for further ones.
    waits_for_client: Cell<bool>,
}

/// A request with its response. It ends, and the client sees a reset, when the client has accepted no bytes of the
/// response for too long.
struct Watched<F> {
    request: Pin<Box<F>>,
    sending: Rc<Sending>,
    /// The value of `asked` when the deadline was set, and the deadline. There is none while the handler runs.
    deadline: Option<(u64, Pin<Box<Sleep>>)>,
    timeout: Duration,
}

impl<F: Future> Future for Watched<F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        let request = this.request.as_mut();
        if SENDING.sync_scope(this.sending.clone(), || request.poll(context)).is_ready() {
            return Poll::Ready(());
        }
        if !this.sending.waits_for_client.get() {
            this.deadline = None;
            return Poll::Pending;
        }
        let asked = this.sending.asked.get();
        if this.deadline.as_ref().is_none_or(|(before, _)| *before != asked) {
            this.deadline = Some((asked, Box::pin(sleep(this.timeout))));
        }
        this.deadline.as_mut().map_or(Poll::Pending, |(_, deadline)| deadline.as_mut().poll(context))
    }
}

/// Whether a connection has requests, and since when it has none.
struct Usage {
    requests: Cell<usize>,
    idle_since: Cell<Instant>,
}

impl Default for Usage {
    fn default() -> Self {
        Usage { requests: Cell::new(0), idle_since: Cell::new(Instant::now()) }
    }
}

/// A request that is being handled.
struct InUse(Rc<Usage>);

impl Usage {
    fn begin(self: &Rc<Self>) -> InUse {
        self.requests.set(self.requests.get() + 1);
        InUse(self.clone())
    }

    /// Waits until the connection has been without requests for this time.
    async fn until_idle(&self, timeout: Duration) {
        loop {
            let since = if self.requests.get() == 0 { self.idle_since.get() } else { Instant::now() };
            if since.elapsed() >= timeout {
                return;
            }
            sleep_until(since + timeout).await;
        }
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        self.0.requests.set(self.0.requests.get() - 1);
        self.0.idle_since.set(Instant::now());
    }
}

/// Hands a request to the application, and returns its response.
async fn respond<S, B>(
    app: Rc<S>,
    request: hyper::Request<Incoming>,
    peer: Option<SocketAddr>,
) -> hyper::Response<ResponseBody>
where
    S: Service<AppRequest, Response = ServiceResponse<B>, Error = actix_web::Error>,
    B: MessageBody + 'static,
{
    let is_head = request.method() == http::Method::HEAD;
    let Some(request) = to_app(request, peer) else {
        let mut response = hyper::Response::new(ResponseBody::empty());
        *response.status_mut() = http::StatusCode::BAD_REQUEST;
        return response;
    };
    let response = match app.call(request).await {
        Ok(response) => response.into_parts().1.map_into_boxed_body(),
        Err(error) => HttpResponse::from_error(error),
    };
    to_hyper(response, is_head)
}

/// Converts a request of hyper to one of the application. They use different versions of the same types.
/// Returns `None` for a request that has no equivalent.
fn to_app(request: hyper::Request<Incoming>, peer: Option<SocketAddr>) -> Option<AppRequest> {
    let (parts, body) = request.into_parts();
    let mut request = AppRequest::with_payload(Payload::Stream { payload: Box::pin(payload(body)) });
    let head = request.head_mut();
    head.method = Method::from_bytes(parts.method.as_str().as_bytes()).ok()?;
    head.uri = parts.uri.to_string().parse().ok()?;
    head.version = Version::HTTP_2;
    head.peer_addr = peer;
    for (name, value) in &parts.headers {
        let name = header::HeaderName::from_bytes(name.as_str().as_bytes()).ok()?;
        head.headers.append(name, header::HeaderValue::from_bytes(value.as_bytes()).ok()?);
    }
    Some(request)
}

/// Returns the body of a request as a stream of bytes, without trailers.
fn payload(mut body: Incoming) -> impl stream::Stream<Item = Result<Bytes, PayloadError>> {
    stream::poll_fn(move |context| {
        loop {
            return match Pin::new(&mut body).poll_frame(context) {
                Poll::Pending => Poll::Pending,
                Poll::Ready(None) => Poll::Ready(None),
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(bytes) => Poll::Ready(Some(Ok(bytes))),
                    Err(_) => continue,
                },
                Poll::Ready(Some(Err(error))) => Poll::Ready(Some(Err(PayloadError::Io(io::Error::other(error))))),
            };
        }
    })
}

/// Converts a response of the application to one of hyper. A response to `HEAD` keeps the length of the
/// body that it leaves out.
fn to_hyper(response: HttpResponse, is_head: bool) -> hyper::Response<ResponseBody> {
    let (response, body) = response.into_parts();
    let mut converted = hyper::Response::new(ResponseBody::empty());
    if let Ok(status) = http::StatusCode::from_u16(response.status().as_u16()) {
        *converted.status_mut() = status;
    }
    for (name, value) in response.headers() {
        let name = http::HeaderName::from_bytes(name.as_str().as_bytes());
        if let (Ok(name), Ok(value)) = (name, http::HeaderValue::from_bytes(value.as_bytes())) {
            converted.headers_mut().append(name, value);
        }
    }
    if !is_head {
        return converted.map(|_| ResponseBody::new(body));
    }
    if let BodySize::Sized(length) = body.size() {
        converted.headers_mut().insert(http::header::CONTENT_LENGTH, length.into());
    }
    converted
}

/// The body of a response.
struct ResponseBody {
    body: BoxBody,
    /// The number of bytes still to come, if it is known.
    remaining: Option<u64>,
    /// The rest of a piece that is larger than what hyper gets at a time.
    rest: Bytes,
    /// Whether the body has said that nothing more comes.
    is_over: bool,
    /// Keeps the connection from counting as idle.
    _in_use: Option<InUse>,
    /// `None` for a body that nobody watches.
    sending: Option<Rc<Sending>>,
}

impl ResponseBody {
    fn new(body: BoxBody) -> Self {
        let remaining = match body.size() {
            BodySize::None => Some(0),
            BodySize::Sized(length) => Some(length),
            BodySize::Stream => None,
        };
        let is_over = remaining == Some(0);
        ResponseBody { body, remaining, rest: Bytes::new(), is_over, _in_use: None, sending: None }
    }

    /// Returns the body when hyper begins to send it. The client must accept its first bytes, too.
    fn begin(self, in_use: InUse, sending: Option<Rc<Sending>>) -> Self {
        if let Some(sending) = &sending {
            sending.waits_for_client.set(true);
        }
        ResponseBody { _in_use: Some(in_use), sending, ..self }
    }

    fn empty() -> Self {
        ResponseBody::new(BoxBody::new(()))
    }

    /// Returns the next bytes, at most `SLICE`: what hyper has taken has no deadline.
    fn poll_slice(&mut self, context: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        if self.rest.is_empty() {
            let Some(piece) = std::task::ready!(Pin::new(&mut self.body).poll_next(context)) else {
                self.is_over = true;
                return Poll::Ready(None);
            };
            self.rest = piece.map_err(|error| io::Error::other(error.to_string()))?;
        }
        let length = self.rest.len().min(SLICE);
        Poll::Ready(Some(Ok(self.rest.split_to(length))))
    }
}

impl http_body::Body for ResponseBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let next = self.poll_slice(context);
        if let Some(sending) = &self.sending {
            sending.asked.set(sending.asked.get() + 1);
            sending.waits_for_client.set(next.is_ready());
        }
        let next = std::task::ready!(next);
        Poll::Ready(next.map(|bytes| {
            let bytes = bytes?;
            self.remaining = self.remaining.map(|remaining| remaining.saturating_sub(bytes.len() as u64));
            Ok(Frame::data(bytes))
        }))
    }

    /// Returns whether nothing more comes. After the last bytes the body is asked once more: hyper takes bytes before the
    /// client accepts them, and asks again only afterwards. Only then a claim counts as delivered.
    fn is_end_stream(&self) -> bool {
        self.is_over
    }

    fn size_hint(&self) -> SizeHint {
        self.remaining.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

#[cfg(test)]
mod tests;
