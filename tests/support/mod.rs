//! Fixtures of the tests: one PostgreSQL shared by all tests, a database and a server on its own
//! port for each test, and separate PostgreSQL clusters for tests that stop or damage theirs.

mod app;
pub(crate) mod browser;
mod buffers;
mod chance;
mod client;
mod crowd;
pub(crate) mod database;
pub(crate) mod event_stream;
mod failures;
pub(crate) mod foreign;
mod held_table;
pub(crate) mod keys;
pub(crate) mod ledger;
pub(crate) mod locks;
pub(crate) mod namespaces;
pub(crate) mod operations;
pub(crate) mod pages;
mod place;
pub(crate) mod process;
pub(crate) mod realistic_day;
pub(crate) mod receiver;
pub(crate) mod records;
mod reply;
pub(crate) mod retention;
pub(crate) mod sessions;
pub(crate) mod sources;
pub(crate) mod ui_pages;
mod wait;
pub(crate) mod wire;
pub(crate) mod work;

pub(crate) use app::{App, Options};
pub(crate) use chance::Rng;
pub(crate) use client::{http_client, http_client_with};
pub(crate) use held_table::HeldTable;
pub(crate) use place::ClusterDir;
pub(crate) use reply::Reply;
pub(crate) use wait::{PATIENCE, until, within_patience};
