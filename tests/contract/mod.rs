//! `openapi.yaml` and the server, held together in both directions: what the document says
//! the server does, and what the server does the document says.

mod answers;
mod bounds;
mod docs;
mod document;
mod examples;
mod lists;
mod parameters;
mod witness;
