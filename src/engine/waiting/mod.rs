//! What a server remembers about waiting deliveries and waiting workers.
//!
//! None of it is needed for correctness. [`hub`] holds the workers in long polls. [`low_water_marks`]
//! and [`due_times`] tell where scans begin. [`peer_notifier`] collects notifications for other servers.
//! [`worker_sightings`] collects the workers that called.

pub mod due_times;
pub(crate) mod hub;
pub mod low_water_marks;
pub(crate) mod peer_notifier;
pub(crate) mod worker_sightings;
