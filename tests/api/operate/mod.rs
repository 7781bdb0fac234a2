mod actors;
mod cancel;
mod expire;
mod rescue;
mod reset;
mod retry;
