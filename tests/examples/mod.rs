//! What a newcomer runs first: the workers in `examples`, and the README as it is printed.

mod readme;
mod relay;
mod workers;
