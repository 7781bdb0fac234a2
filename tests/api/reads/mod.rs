mod cursors;
mod health;
mod logs;
mod metrics;
mod moving_lists;
mod problems;
mod tags;
mod workers;
