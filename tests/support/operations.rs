//! Operations: starting them, and running their steps.

use chrono::TimeDelta;
use serde_json::{Value, json};
use waybill::background::operation_runner;

use super::{App, until};

/// A rate that no test reaches.
const AS_FAST_AS_POSSIBLE: u32 = 10_000;

/// Returns the body of an operation on the rows that match a filter.
pub(crate) fn all_that_match(filter: &Value) -> Value {
    json!({"filter": filter, "per_second": AS_FAST_AS_POSSIBLE})
}

impl App {
    /// Starts an operation and returns it.
    pub(crate) async fn start_operation(&self, path: &str, body: &Value) -> Value {
        let reply = self.post(path, body).await.expect(202);
        let operation = reply.json();
        assert_eq!(reply.header("location"), Some(format!("/operations/{}", operation["id"]).as_str()));
        operation
    }

    /// Returns the present state of an operation.
    pub(crate) async fn operation(&self, operation: &Value) -> Value {
        self.get(&format!("/operations/{}", operation["id"])).await.expect(200).json()
    }

    /// Runs the steps that are due. Returns the number of rows that were dealt with.
    pub(crate) async fn run_steps(&self) -> usize {
        operation_runner::run_once(self.engine()).await.expect("a round of the operation runner")
    }

    /// Waits until an operation is complete, and returns it. Moves a fixed clock if it must.
    pub(crate) async fn until_complete(&self, operation: &Value) -> Value {
        until("the operation is complete", async || {
            if self.engine().now().is_some() && self.run_steps().await == 0 {
                self.engine().clock().advance(TimeDelta::milliseconds(100));
            }
            self.operation(operation).await["status"] == "COMPLETED"
        })
        .await;
        self.operation(operation).await
    }

    /// Runs an operation on the rows that match a filter to its end. Returns how many rows it has changed.
    pub(crate) async fn operate_on_all(&self, path: &str, filter: Value) -> i64 {
        let operation = self.start_operation(path, &all_that_match(&filter)).await;
        self.until_complete(&operation).await["done"].as_i64().expect("a number")
    }

    /// Returns what an operation would do.
    pub(crate) async fn dry_run(&self, path: &str, filter: Value) -> Value {
        self.post(path, &json!({"filter": filter, "dry_run": true})).await.expect(200).json()
    }
}
