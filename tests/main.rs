//! One test binary, because linking several costs more than running them. Files under `api` mirror
//! the routes.

mod support;

mod api;
mod backup;
mod browser;
mod chaos;
mod cli;
mod clients;
mod concurrency;
mod configuration;
mod contract;
mod costs;
mod dashboard;
mod documents;
mod edge;
mod embedded;
mod examples;
mod faults;
mod logs;
mod long_poll;
mod memory;
mod metrics;
mod migrations;
mod namespaces;
mod old_names;
mod ordering;
mod packages;
mod pgbouncer;
mod push;
mod restores;
mod retention;
mod schema;
mod secrets;
mod statements;
mod sweeps;
mod tls;
#[cfg(feature = "otlp")]
mod traces;
#[cfg(not(feature = "otlp"))]
mod traces_absent;
mod trail;
mod walls;
mod webhook;
mod work;
