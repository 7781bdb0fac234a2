//! Pages of the server in a real browser, and the harness that drives it.

mod administration;
mod dead_letters;
mod docs;
mod event;
mod events;
mod every_page;
mod harness;
mod keyboard;
mod lifetime;
mod live;
mod login;
mod overview;
mod phone;
mod pressing;
mod screenshots;
mod search;
mod subscriptions;
mod tags;
mod workers;
