//! What newcomers run first: the workers in `examples`, and the commands of the README.

mod problems;
mod readme;
mod realistic_day;
mod relay;
mod rust_client;
mod workers;
