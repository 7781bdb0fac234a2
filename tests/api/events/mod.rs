mod batch;
mod get;
mod list;
mod list_bounds;
mod list_cost;
mod payload;
mod publish;
mod search;
