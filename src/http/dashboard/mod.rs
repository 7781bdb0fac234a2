//! The dashboard: pages for people, rendered by the server.
//!
//! A page is a function from rows to markup ([`maud`], checked when it is compiled). All state is in the URL, so every
//! view can be sent to a colleague. The script adds actions and live figures; it calls the API that everybody calls,
//! with the session of the viewer, so a page can do nothing that the viewer's key does not allow.
//!
//! - [`frame`]: what surrounds every page; [`viewer`]: who looks at it; [`parts`]: what pages share.
//! - [`login`]: the login, the logout, and the session that lies between them.
//! - [`refusal`]: what somebody reads who may not see a page; [`plain`]: what surrounds these pages.
//! - [`filter_line`]: the line of words with which events are filtered.
//! - [`form_fields`]: fields of forms that send a request to the API; [`namespace_switch`]: the switch in the bar.
//! - [`filter_fields`]: the filter of other lists; [`bulk`]: what can be done with the rows of a list.
//! - [`assets`]: the files that pages need, inside the binary.
//! - [`attention`], [`failures`], [`slow`], [`history`], [`chart`]: the parts of the overview.
//! - one file per page.

mod asking;
pub(crate) mod assets;
mod attempts;
mod attention;
pub(crate) mod audit;
mod bulk;
mod chart;
pub(crate) mod dead_letter;
pub(crate) mod dead_letters;
pub(crate) mod deliveries;
pub(crate) mod delivery;
mod document;
pub(crate) mod event;
mod event_facts;
pub(crate) mod event_type;
pub(crate) mod event_types;
pub(crate) mod events;
mod failures;
mod filter_fields;
mod filter_line;
mod first_steps;
mod form_fields;
mod frame;
mod history;
mod json_text;
pub(crate) mod key;
pub(crate) mod keys;
pub(crate) mod login;
mod moments;
pub(crate) mod namespace;
mod namespace_switch;
pub(crate) mod namespaces;
mod next;
mod numbers;
pub(crate) mod operations;
pub(crate) mod overview;
mod parts;
mod plain;
pub(crate) mod publish;
mod push_moment;
mod push_parts;
pub(crate) mod refusal;
mod scale;
pub(crate) mod settings;
mod slow;
pub(crate) mod source;
pub(crate) mod sources;
pub(crate) mod subscription;
pub(crate) mod subscription_form;
pub(crate) mod subscriptions;
pub(crate) mod tags;
mod timeline;
mod viewer;
pub(crate) mod workers;
