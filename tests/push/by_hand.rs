//! A dispatcher whose rounds the test makes, so that what was not sent is known, too.

use waybill::background::dispatcher::{Dispatcher, DispatcherSettings};
use waybill::webhook::{Client, WebhookSettings};

use super::owned;
use crate::support::{App, Options};

/// A server that sends nothing by itself, and whose time stands still.
pub async fn idle(flags: &[&str]) -> App {
    idle_on(None, flags).await
}

/// Another on the same database.
pub async fn idle_beside(app: &App, flags: &[&str]) -> App {
    idle_on(Some(app.url.clone()), flags).await
}

async fn idle_on(url: Option<String>, flags: &[&str]) -> App {
    let mut flags = owned(flags);
    flags.push("--dispatch=false".into());
    App::start_with(Options { url, flags, fixed_clock: true }).await
}

/// A dispatcher for it.
pub fn dispatcher(app: &App, max_pushes: usize) -> Dispatcher {
    Dispatcher::new(app.engine().clone(), client(), DispatcherSettings { max_pushes })
}

/// What sends to receivers on this machine.
pub fn client() -> Client {
    let settings = WebhookSettings { allow: "127.0.0.0/8".parse().expect("a network"), ..WebhookSettings::default() };
    Client::new(&settings).expect("a client")
}

/// Has a dispatcher look at everybody; answers how many requests it started.
pub async fn look(app: &App, dispatcher: &mut Dispatcher) -> usize {
    app.engine().dispatch_signal().signal(None);
    dispatcher.run_once().await.expect("a round")
}

/// The same, and waits until they are on record.
pub async fn look_and_finish(app: &App, dispatcher: &mut Dispatcher) -> usize {
    let started = look(app, dispatcher).await;
    dispatcher.finish().await;
    started
}
