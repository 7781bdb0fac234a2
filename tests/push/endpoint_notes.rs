//! Notes about endpoints: failures, successes and pauses are written in batches, in order.

use futures_util::future::join_all;
use serde_json::{Value, json};
use waybill::domain::ids::NamespaceId;
use waybill::engine::push::endpoint_notes::{EndpointNote, Finding};
use waybill::store::tables::endpoints::EndpointKey;

use super::by_hand::{dispatch, dispatcher, idle};
use super::{endpoint, with_flags};
use crate::support::locks::HeldRow;
use crate::support::receiver::Receiver;
use crate::support::{App, database, ledger};

const PAUSED: &str = "/paused";

/// Creates a subscription to an endpoint that has failed once.
async fn failed_once(app: &App, receiver: &Receiver) -> Value {
    let subscription = app.subscribe(&receiver.url("/hook"), json!({})).await;
    fail(app, &receiver.url("/hook")).await;
    subscription
}

async fn fail(app: &App, url: &str) {
    note(app, url, Some(Finding::Failed { is_probe: false }), None).await;
}

async fn succeed(app: &App, url: &str) {
    note(app, url, Some(Finding::Answered), None).await;
}

async fn pause(app: &App, url: &str, seconds: f64) {
    note(app, url, None, Some(seconds)).await;
}

async fn note(app: &App, url: &str, finding: Option<Finding>, pause_seconds: Option<f64>) {
    let endpoint = EndpointKey { namespace: NamespaceId::DEFAULT, url };
    app.engine().note_endpoint(endpoint, EndpointNote { finding, pause_seconds }).await.expect("it is noted");
}

async fn hold_endpoints(app: &App) -> HeldRow {
    HeldRow::with_uncommitted(app, "UPDATE waybill.endpoints SET updated_at = now()").await
}

/// Makes the database count the transactions that change endpoints.
async fn count_transactions(app: &App) {
    let sql = "CREATE TABLE public.noted (xid xid8);
               CREATE FUNCTION public.count_note() RETURNS trigger LANGUAGE plpgsql AS
               'BEGIN INSERT INTO public.noted VALUES (pg_current_xact_id()); RETURN NULL; END';
               CREATE TRIGGER count_note AFTER INSERT OR UPDATE ON waybill.endpoints
               FOR EACH STATEMENT EXECUTE FUNCTION public.count_note();";
    database::execute(&app.url, sql).await;
}

async fn transactions(app: &App) -> i64 {
    app.count("SELECT count(DISTINCT xid) FROM public.noted").await
}

#[tokio::test(flavor = "multi_thread")]
async fn notes_of_one_kind_that_arrive_together_are_written_in_one_batch() {
    let (app, receiver) = (idle(&[]).await, Receiver::start().await);
    let (url, subscription) = (receiver.url("/hook"), failed_once(&app, &receiver).await);
    count_transactions(&app).await;

    let held = hold_endpoints(&app).await;
    let first = async { pause(&app, &url, 10.0).await };
    let others = async {
        app.until_blocked_calls(1).await;
        let pauses = join_all((0..20).map(|seconds| pause(&app, &url, f64::from(seconds))));
        tokio::join!(pauses, held.unlock());
    };
    tokio::join!(first, others);
    // One is the test's own.
    assert_eq!(transactions(&app).await, 3);
    assert_eq!(app.seconds_ahead(&endpoint(&app, &subscription).await["paused_until"]), 19);

    let held = hold_endpoints(&app).await;
    let first = async { succeed(&app, &url).await };
    let others = async {
        app.until_blocked_calls(1).await;
        tokio::join!(join_all((0..20).map(|_| succeed(&app, &url))), held.unlock());
    };
    tokio::join!(first, others);
    assert_eq!(transactions(&app).await, 6);
    assert_eq!(endpoint(&app, &subscription).await["failures_in_row"], 0);
    ledger::check(&app).await;
}

/// The breaker opens after four failures in a row. If the five were counted after the success, it
/// would open on an endpoint that has answered since.
#[tokio::test(flavor = "multi_thread")]
async fn a_success_does_not_overtake_the_failures_before_it() {
    let (app, receiver) = (with_flags(&["--breaker-failures=4"]).await, Receiver::start().await);
    let (url, subscription) = (receiver.url("/hook"), failed_once(&app, &receiver).await);
    let held = hold_endpoints(&app).await;
    let first = async { fail(&app, &url).await };
    let later = async {
        app.until_blocked_calls(1).await;
        let failures = join_all((0..5).map(|_| fail(&app, &url)));
        tokio::join!(failures, succeed(&app, &url), held.unlock());
    };
    tokio::join!(first, later);
    let closed = json!({"breaker": "closed", "failures_in_row": 0, "paused_until": null});
    assert_eq!(endpoint(&app, &subscription).await, closed);
    ledger::check(&app).await;
}

/// Only the failures after the last success of a batch count as failures in a row.
#[tokio::test(flavor = "multi_thread")]
async fn failures_after_a_success_in_the_same_batch_count() {
    let (app, receiver) = (with_flags(&["--breaker-failures=4"]).await, Receiver::start().await);
    let (url, subscription) = (receiver.url("/hook"), failed_once(&app, &receiver).await);
    let held = hold_endpoints(&app).await;
    let first = async { fail(&app, &url).await };
    let later = async {
        app.until_blocked_calls(1).await;
        let (one, two) = (fail(&app, &url), fail(&app, &url));
        tokio::join!(one, succeed(&app, &url), two, held.unlock());
    };
    tokio::join!(first, later);
    assert_eq!(endpoint(&app, &subscription).await["failures_in_row"], 1);
    ledger::check(&app).await;
}

/// The dispatcher takes a probe for which there is no push, and returns it.
#[tokio::test(flavor = "multi_thread")]
async fn the_dispatcher_does_not_wait_for_notes_about_other_endpoints() {
    let (app, receiver) = (idle(&["--breaker-failures=1"]).await, Receiver::start().await);
    let mut dispatcher = dispatcher(&app, 100);
    let subscription = app.subscribe(&receiver.url("/hook"), json!({"event_types": ["none"]})).await;
    fail(&app, &receiver.url("/hook")).await;
    let paused = receiver.url(PAUSED);
    pause(&app, &paused, 1.0).await;
    app.advance(60);

    let held =
        HeldRow::with_uncommitted(&app, "UPDATE waybill.endpoints SET updated_at = now() WHERE url LIKE '%/paused'");
    let held = held.await;
    let notes = join_all((0..20).map(|_| pause(&app, &paused, 10.0)));
    let round = async {
        app.until_blocked_calls(1).await;
        assert_eq!(dispatch(&app, &mut dispatcher).await, 0);
    };
    tokio::select! {
        biased;
        _ = notes => panic!("the row was not held"),
        () = round => {}
    }
    assert_eq!(endpoint(&app, &subscription).await["breaker"], "half_open", "the probe is returned");
    held.unlock().await;
    ledger::check(&app).await;
}
