//! Opens, pools and observes connections to PostgreSQL, and classifies their errors.

pub mod address;
pub(crate) mod blocking;
pub(crate) mod cached;
pub mod connect;
pub mod database;
pub(crate) mod dial;
pub mod migrate;
pub(crate) mod notify;
pub(crate) mod sqlstate;
pub(crate) mod stream;
pub(crate) mod tls;
pub(crate) mod transactions;
pub(crate) mod version;
pub(crate) mod whole_result;
