//! Opens, pools and observes connections to PostgreSQL, and classifies their errors.

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
