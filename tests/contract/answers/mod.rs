//! Real responses of real servers, checked against the document: first every route with events in
//! every state, then every refusal, then servers in trouble. In the end every documented response
//! has been given.

mod life;
mod records;
mod refusals;
mod subscriptions;
mod trouble;

use super::witness::Coverage;

/// Responses that no test can cause: a body that takes more than thirty seconds to arrive, and a
/// script that was left out of the binary.
fn is_out_of_reach(path: &str, status: u16) -> bool {
    status == 408 || (path == "/docs/scalar.js" && status == 500)
}

#[tokio::test(flavor = "multi_thread")]
async fn every_response_is_documented_and_every_documented_response_is_given() {
    let coverage = Coverage::new();
    life::run(&coverage).await;
    subscriptions::run(&coverage).await;
    refusals::run(&coverage).await;
    trouble::run(&coverage).await;
    let mut unseen = coverage.unseen_responses();
    unseen.retain(|(operation, status)| !is_out_of_reach(&operation.path, *status));
    assert_eq!(unseen, []);
    assert_eq!(coverage.unseen_codes(), ["request_timeout"]);
}
