//! All SQL of the server.
//!
//! [`connection`] opens and pools connections, [`tables`] has one module per table, [`lists`] reads
//! pages for operators, [`retention`] deletes old rows, [`backup`] has what backups and restores need. Functions take a connection, return rows and
//! never open a transaction: the engine decides which changes belong together. Diesel's DSL is used
//! where it suffices. A statement that needs CTEs or `UNNEST` is a file in `sql/`, named like the
//! function that runs it. [`statement`] describes how a file declares its parameters and how to run
//! it in `psql`.

pub(crate) mod backup;
pub mod connection;
pub mod lists;
pub mod retention;
pub mod statement;
pub mod tables;
