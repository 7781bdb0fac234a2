//! What tests stand on: a real PostgreSQL shared by all, a database of its own for each, and
//! a real server on a port of its own.

mod app;
pub mod database;
mod reply;
mod wait;

pub use app::{App, Options};
pub use reply::Reply;
pub use wait::{until, within_patience};
