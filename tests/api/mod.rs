mod claims;
mod dead_letters;
mod deliveries;
mod errors;
mod events;
mod operate;
mod reads;
mod work;
