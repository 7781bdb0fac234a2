//! One test binary, because linking several costs more than running them. Files under `api` mirror
//! the routes.

mod support;

mod api;
mod chaos;
mod clients;
mod concurrency;
mod configuration;
mod contract;
mod costs;
mod documents;
mod edge;
mod embedded;
mod examples;
mod faults;
mod long_poll;
mod memory;
mod migrations;
mod namespaces;
mod old_names;
mod ordering;
mod pgbouncer;
mod push;
mod restores;
mod retention;
mod schema;
mod secrets;
mod statements;
mod sweeps;
mod tls;
mod walls;
mod webhook;
