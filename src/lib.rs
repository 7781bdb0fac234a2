//! Waybill: a durable job queue and webhook relay over PostgreSQL and plain HTTP.
//!
//! The rooms, and the only ways between them:
//! `http → engine → store → domain`, `background → engine, webhook`, `http → store` for reads. Which
//! room does something belong to? *True without a database:* [`domain`]. *SQL:* [`store`].
//! *Two rows must change together:* [`engine`]. *Knows a status code:* [`http`]. *Knows the
//! time:* [`background`]. *Talks to strangers:* [`webhook`]. `docs/architecture.md` walks
//! through them.

pub mod background;
pub mod bench;
pub mod cli;
pub mod config;
pub mod domain;
pub mod engine;
pub mod error;
pub mod http;
pub mod logging;
pub mod metrics;
pub mod postgres;
pub mod startup;
pub mod store;
pub mod webhook;
