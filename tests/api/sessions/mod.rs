//! Sessions: what a browser has instead of a key.

mod end;
mod login;
mod pages;
