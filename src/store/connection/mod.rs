//! Connections to PostgreSQL: how they are opened, pooled and watched, and what their errors mean.

pub mod blocking;
pub mod cached;
pub mod connect;
pub mod database;
pub mod dial;
pub mod migrate;
pub mod notify;
pub mod sqlstate;
pub mod stream;
pub mod transactions;
