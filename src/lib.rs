//! Waybill: a durable job queue and webhook relay over PostgreSQL and plain HTTP.
//!
//! The main dependencies between the modules are `http → engine → store → domain`,
//! `background → engine, webhook`, and `http → store` for reads. Where does new code belong?
//!
//! - [`domain`] has rules that need neither a database nor a clock.
//! - [`store`] has all SQL.
//! - [`engine`] has changes of several rows that belong together, in one transaction.
//! - [`http`] has requests, responses and status codes.
//! - [`background`] has services that run without a request.
//! - [`traces`] sends spans to an OpenTelemetry collector.
//! - [`webhook`] sends requests to the receivers of subscribers.
//! - `backup` writes and loads the files of `waybill backup`.
//! - [`client`] publishes events and works on them, over HTTP; it uses nothing of the server.
//!
//! `docs/architecture.md` lists all allowed dependencies and follows three requests through the modules.

pub mod background;
pub(crate) mod backup;
pub(crate) mod bench;
pub mod cli;
pub mod client;
pub mod config;
pub mod domain;
pub mod engine;
pub(crate) mod error;
pub mod http;
pub(crate) mod logging;
pub(crate) mod metrics;
pub mod postgres;
pub mod startup;
pub mod store;
pub(crate) mod traces;
pub mod webhook;
