//! API keys: who may call, and what they may do. `tests/contract/doors.rs` walks all routes.

mod create;
mod list;
mod reveal;
mod revoke;
mod rotate;
mod servers;
mod tags;
mod unknown;
mod update;
