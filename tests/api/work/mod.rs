mod example_flows;
mod fail;
mod fencing;
mod heartbeat;
mod next;
mod release;
mod settle;
mod start;
