//! The nouns of the API, and `doctor`.

mod administration;
mod doctor;
mod forbidden;
mod pushes;
mod sources;
mod subscriptions;
mod types;

use crate::support::{App, Options};

/// Starts a server whose clock stands still, three hours ago, and that sends nothing by itself.
async fn start_quiet() -> App {
    let flags = vec!["--dispatch=false".into()];
    let app = App::start_with(Options { fixed_clock: true, flags, ..Options::default() }).await;
    app.advance(-3 * 3600);
    app
}
