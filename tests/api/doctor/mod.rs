//! `GET /doctor`: what it finds, each provoked for real.

mod database;
mod failures;
mod server;
mod work;

use serde_json::Value;

use crate::support::App;

impl App {
    /// Returns one check.
    async fn check(&self, name: &str) -> Value {
        let diagnosis = self.get("/doctor").await.expect(200).json();
        let checks = diagnosis["checks"].as_array().expect("checks");
        let found: Vec<&Value> = checks.iter().filter(|check| check["name"] == name).collect();
        assert_eq!(found.len(), 1, "{name} in {diagnosis:#}");
        found[0].clone()
    }

    /// Asserts how a check ends. Returns it.
    async fn assert_check(&self, name: &str, status: &str) -> Value {
        let check = self.check(name).await;
        assert_eq!(check["status"], status, "{check:#}");
        check
    }
}

/// Asserts that a text contains another.
#[track_caller]
fn assert_says(text: &Value, part: &str) {
    assert!(text.as_str().is_some_and(|text| text.contains(part)), "{part:?} in {text}");
}
