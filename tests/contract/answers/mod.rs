//! Real answers of real servers, judged against the document: first every route in a whole
//! life of events, then every refusal, then servers in trouble. In the end every documented
//! answer has been given.

mod life;
mod records;
mod refusals;
mod subscriptions;
mod trouble;

use super::witness::Record;

/// Answers that no test can bring about: a body that takes more than thirty seconds to
/// arrive, and a script that was left out of the binary.
fn is_out_of_reach(path: &str, status: u16) -> bool {
    status == 408 || (path == "/docs/scalar.js" && status == 500)
}

#[tokio::test(flavor = "multi_thread")]
async fn every_answer_is_documented_and_every_documented_answer_is_given() {
    let record = Record::new();
    life::run(&record).await;
    subscriptions::run(&record).await;
    refusals::run(&record).await;
    trouble::run(&record).await;
    let mut unseen = record.unseen_answers();
    unseen.retain(|(operation, status)| !is_out_of_reach(&operation.path, *status));
    assert_eq!(unseen, []);
    assert_eq!(record.unseen_codes(), ["request_timeout"]);
}
