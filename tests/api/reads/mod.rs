mod cursors;
mod health;
mod logs;
mod metrics;
mod tags;
mod workers;
