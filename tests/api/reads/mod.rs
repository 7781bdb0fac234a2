mod health;
mod logs;
mod tags;
mod workers;
