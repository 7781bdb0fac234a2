//! A dispatcher that runs only when the test says so, which shows also what was not sent.

use waybill::background::dispatcher::{Dispatcher, DispatcherSettings};
use waybill::webhook::{Client, WebhookSettings};

use super::owned;
use crate::support::{App, Options};

/// Starts a server with a fixed clock that sends nothing on its own.
pub(super) async fn idle(flags: &[&str]) -> App {
    idle_on(None, flags).await
}

/// Starts another server on the same database.
pub(super) async fn second_idle_server(app: &App, flags: &[&str]) -> App {
    idle_on(Some(app.url.clone()), flags).await
}

async fn idle_on(url: Option<String>, flags: &[&str]) -> App {
    let mut flags = owned(flags);
    flags.push("--dispatch=false".into());
    App::start_with(Options { url, flags, fixed_clock: true }).await
}

/// Creates a dispatcher for the server.
pub(super) fn dispatcher(app: &App, max_pushes: usize) -> Dispatcher {
    Dispatcher::new(app.engine().clone(), client(), DispatcherSettings { max_pushes })
}

/// Creates a client that may send to receivers on this machine.
pub(super) fn client() -> Client {
    let settings = WebhookSettings { allow: "127.0.0.0/8".parse().expect("a network"), ..WebhookSettings::default() };
    Client::new(&settings).expect("a client")
}

/// Runs the dispatcher once for all subscriptions. Returns how many requests it started.
pub(super) async fn dispatch(app: &App, dispatcher: &mut Dispatcher) -> usize {
    app.engine().dispatch_signal().signal(None);
    dispatcher.run_once().await.expect("a round")
}

/// Does the same and waits until the outcomes are recorded.
pub(super) async fn dispatch_and_finish(app: &App, dispatcher: &mut Dispatcher) -> usize {
    let started = dispatch(app, dispatcher).await;
    dispatcher.finish().await;
    started
}
