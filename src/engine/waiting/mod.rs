//! What a server remembers about work that waits, and about those who wait for it.
//!
//! None of it is needed for correctness. [`hub`] holds the workers in long polls; [`low_water_marks`]
//! and [`due_times`] say where scans begin; [`peer_notifier`] collects what other servers are told;
//! [`worker_sightings`] collects who called.

pub mod due_times;
pub mod hub;
pub mod low_water_marks;
pub mod peer_notifier;
pub mod worker_sightings;
