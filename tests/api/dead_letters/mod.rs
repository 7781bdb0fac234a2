//! `/dead-letters`.

mod bulk;
mod get;
mod list;
mod replay;
mod retention;
