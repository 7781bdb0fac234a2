//! The screen of a terminal, taken and given back.

use std::io::{self, Write};
use std::panic;

use crossterm::cursor::{Hide, MoveTo, Show};
use crossterm::terminal::{
    Clear, ClearType, DisableLineWrap, EnableLineWrap, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode,
    enable_raw_mode, size,
};
use crossterm::{execute, queue};

use super::view::View;

/// The full screen. It is given back when this is dropped.
pub(super) struct Screen(());

impl Screen {
    pub(super) fn take() -> io::Result<Self> {
        // A panic must be read on the screen that stays.
        let report = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            give_back();
            report(panic);
        }));
        enable_raw_mode()?;
        let screen = Screen(());
        execute!(io::stdout(), EnterAlternateScreen, Hide, DisableLineWrap)?;
        Ok(screen)
    }

    /// Draws all lines that fit, in one write.
    #[expect(clippy::unused_self, reason = "only a screen that was entered can be drawn on")]
    pub(super) fn draw(&mut self, view: &View) -> io::Result<()> {
        let (width, height) = size()?;
        let mut frame = Vec::new();
        let lines = view.lines(usize::from(width), usize::from(height));
        for (number, line) in (0..height).zip(&lines) {
            // Cleared before, not after: behind a full line the cursor is still on its last character.
            queue!(frame, MoveTo(0, number), Clear(ClearType::UntilNewLine))?;
            frame.extend_from_slice(line.as_bytes());
        }
        if lines.len() < usize::from(height) {
            queue!(frame, MoveTo(0, lines.len() as u16), Clear(ClearType::FromCursorDown))?;
        }
        let mut stdout = io::stdout().lock();
        stdout.write_all(&frame)?;
        stdout.flush()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}

fn give_back() {
    // Nothing can be done if the terminal is gone.
    let _ = execute!(io::stdout(), EnableLineWrap, Show, LeaveAlternateScreen);
    let _ = disable_raw_mode();
}
