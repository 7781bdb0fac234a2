//! The pages of the dashboard, as the server sends them. `browser` has what they do in a browser.

mod administration;
mod assets;
mod configuration;
mod content;
mod event;
mod overview;
mod push;
mod readers;
mod search;
mod workers_and_tags;
