//! The room that sends, against a receiver that answers well and badly.

mod receiver;
