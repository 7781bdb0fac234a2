//! Lists for operators. Their cost is bounded, whatever the size of the tables.

pub mod dead_letters;
pub mod events;
pub mod filtered_query;
pub mod gauges;
pub mod pages;
pub mod pushes;
pub mod tags;
