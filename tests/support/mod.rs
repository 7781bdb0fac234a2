//! What tests stand on: a real PostgreSQL shared by all, a database of its own for each, and
//! a real server on a port of its own; or a PostgreSQL of the test's own, to be ill-treated.

mod app;
mod buffers;
mod chance;
mod client;
mod crowd;
pub mod database;
pub mod foreign;
mod held_table;
pub mod ledger;
pub mod locks;
mod place;
pub mod process;
pub mod receiver;
pub mod records;
mod reply;
mod wait;
pub mod wire;
pub mod work;

pub use app::{App, Options};
pub use chance::Chance;
pub use client::http_client;
pub use held_table::HeldTable;
pub use place::Place;
pub use reply::Reply;
pub use wait::{PATIENCE, until, within_patience};
