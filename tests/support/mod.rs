//! Fixtures of the tests: one PostgreSQL shared by all tests, a database and a server on its own
//! port for each test, and separate PostgreSQL clusters for tests that stop or damage theirs.

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
pub use chance::Rng;
pub use client::http_client;
pub use held_table::HeldTable;
pub use place::ClusterDir;
pub use reply::Reply;
pub use wait::{PATIENCE, until, within_patience};
