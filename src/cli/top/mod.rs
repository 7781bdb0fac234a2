//! `waybill top`: the state of the server on a full screen, live.
//!
//! The screen is given back in every case: `q`, Ctrl-C, SIGTERM and a panic. A server that is away is said to be away,
//! and asked again.

mod look;
mod screen;
mod view;

use std::io::{self, IsTerminal};
use std::pin::Pin;
use std::time::Duration;

use chrono::Utc;
use crossterm::event::{Event, EventStream, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use futures_util::StreamExt;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{MissedTickBehavior, interval};

use self::look::Look;
use self::screen::Screen;
use self::view::View;
use super::client::ApiClient;
use super::error::CliError;
use super::output::{Output, clean};
use crate::config::TopArgs;

/// How often the ages on the screen are drawn anew.
const REDRAW: Duration = Duration::from_secs(1);

type Looking = Pin<Box<dyn Future<Output = Result<Look, CliError>>>>;

pub(crate) async fn run(args: TopArgs) -> Result<(), CliError> {
    if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        return Err(CliError::Usage("top needs a terminal; waybill stats prints the same figures".to_owned()));
    }
    let (client, output) = (ApiClient::new(&args.server)?, Output::new(&args.server));
    // Before the screen is taken, so that a wrong address or key is said where it can be read.
    let first = look::take(&client).await?;
    let view = View { url: clean(&args.server.connection.url), output, look: first, away: None };
    let mut screen = Screen::take()?;
    watch(&mut screen, &client, view, Duration::from_secs_f64(args.interval)).await
}

/// Draws and looks again until a key or a signal ends it.
async fn watch(screen: &mut Screen, client: &ApiClient, mut view: View, pause: Duration) -> Result<(), CliError> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut keys = EventStream::new();
    let mut redraw = interval(REDRAW);
    redraw.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut looking = look_after(client, pause);
    loop {
        view.output.now = Utc::now();
        screen.draw(&view)?;
        tokio::select! {
            event = keys.next() => match event {
                Some(Ok(Event::Key(key))) if ends(key) => return Ok(()),
                // Also a new size: it is drawn anew.
                Some(Ok(_)) => {}
                // The terminal is gone.
                Some(Err(_)) | None => return Ok(()),
            },
            looked = &mut looking => {
                view.take(looked)?;
                looking = look_after(client, pause);
            }
            _ = redraw.tick() => {}
            _ = terminate.recv() => return Ok(()),
            _ = interrupt.recv() => return Ok(()),
        }
    }
}

fn look_after(client: &ApiClient, pause: Duration) -> Looking {
    let client = client.clone();
    Box::pin(async move {
        tokio::time::sleep(pause).await;
        look::take(&client).await
    })
}

/// Returns whether a key ends the program.
fn ends(key: KeyEvent) -> bool {
    let is_ctrl_c = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
    key.kind == KeyEventKind::Press && (is_ctrl_c || matches!(key.code, KeyCode::Char('q' | 'Q') | KeyCode::Esc))
}
