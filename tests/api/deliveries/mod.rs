//! `/deliveries`.

mod cancel;
mod dead_letter;
mod events;
mod get;
mod list;
mod many;
mod retry;
