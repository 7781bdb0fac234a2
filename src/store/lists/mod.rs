//! Lists for operators, which cost no more on a full database than on an empty one.

pub mod dead_letters;
pub mod events;
pub mod filtered_query;
pub mod gauges;
pub mod pages;
pub mod pushes;
pub mod tags;
