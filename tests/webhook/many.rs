//! Many requests at once.

use futures_util::future::join_all;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use waybill::webhook::Client;

use super::{answered, client, post};
use crate::support::receiver::{Gate, Receiver, Reply};

fn assert_shareable_between_threads<T: Send + Sync + Clone + 'static>() {}

/// Both ends of every connection are in this process.
fn raise_limit_of_open_files() {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("a limit");
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).expect("the hard limit is no limit");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_requests_are_in_flight_at_once() {
    assert_shareable_between_threads::<Client>();
    raise_limit_of_open_files();
    let receiver = Receiver::start().await;
    let gate = Gate::closed();
    receiver.always(Reply::ok().held_by(&gate));
    let client = client();
    let sends: Vec<_> = (0..1000)
        .map(|_| {
            let (client, request) = (client.clone(), post(receiver.url("/")));
            tokio::spawn(async move { client.send(request).await })
        })
        .collect();
    receiver.until_in_flight(1000).await;
    gate.open();
    for sent in join_all(sends).await {
        assert_eq!(answered(sent.unwrap()).status, 200);
    }
}
