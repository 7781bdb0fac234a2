//! `/dead-letters` and `/replays`.

mod bulk;
mod get;
mod list;
mod replay;
mod retention;
