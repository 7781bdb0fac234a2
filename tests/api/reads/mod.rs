mod cursors;
mod health;
mod logs;
mod metrics;
mod problems;
mod tags;
mod workers;
