//! `openapi.yaml` and the server are compared in both directions: the server does what the document
//! says, and the document says what the server does.

mod answers;
mod bounds;
mod docs;
mod document;
mod doors;
mod examples;
mod lists;
mod parameters;
mod real_examples;
mod shape;
mod strictness;
mod witness;
