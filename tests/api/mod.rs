mod claims;
mod errors;
mod events;
mod operate;
mod reads;
mod work;
