//! Real responses of real servers, checked against the document: first every route with events in
//! every state, then every refusal, then servers in trouble. In the end every documented response
//! has been given.

mod event_types;
mod keys;
mod life;
mod limits;
mod namespaces;
mod records;
mod refusals;
mod sources;
mod subscriptions;
mod trouble;

use super::witness::Coverage;

#[tokio::test(flavor = "multi_thread")]
async fn every_response_is_documented_and_every_documented_response_is_given() {
    let coverage = Coverage::new();
    life::run(&coverage).await;
    subscriptions::run(&coverage).await;
    sources::run(&coverage).await;
    keys::run(&coverage).await;
    namespaces::run(&coverage).await;
    limits::run(&coverage).await;
    event_types::run(&coverage).await;
    refusals::run(&coverage).await;
    trouble::run(&coverage).await;
    assert_eq!(coverage.unseen_responses(), []);
    // No test waits for thirty seconds.
    assert_eq!(coverage.unseen_codes(), ["request_timeout"]);
}
