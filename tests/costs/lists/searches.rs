//! What searches cost that no index serves alone, and how far they get.

use std::collections::BTreeMap;

use waybill::domain::path::JsonPath;
use waybill::domain::search::PayloadConditions;
use waybill::domain::status::Status;
use waybill::store::lists::event_filter::Exclusions;
use waybill::store::lists::events::EventFilter;
use waybill::store::lists::pages::Page;

use super::{EVENTS, STATES_IN_USE, any, app, created_at, finds, ids, list, page};

/// The most that a page may cost that examines 10,000 events: two look-ups each.
const MOST_EXAMINED: i64 = 85_000;

/// The most that a page may cost that reads 2,000 payloads, or 4 MiB of large ones.
const MOST_PAYLOADS: i64 = 30_000;

fn payload(path: &str, value: &str) -> PayloadConditions {
    PayloadConditions::from([(JsonPath::parse(path).expect("a path"), value.to_owned())])
}

/// Returns filters that match nothing, which no index can tell, and the most that a page of them may cost.
fn without_index() -> Vec<(&'static str, i64, EventFilter)> {
    let label = || BTreeMap::from([("team".to_owned(), "core".to_owned())]);
    let not = |not: Exclusions| EventFilter { not, ..any() };
    vec![
        ("text", MOST_EXAMINED, EventFilter { text: Some("needle".into()), ..any() }),
        ("label", MOST_EXAMINED, EventFilter { labels: label(), ..any() }),
        ("not text", MOST_EXAMINED, not(Exclusions { text: Some("A JOB".into()), ..Exclusions::default() })),
        ("not status", MOST_EXAMINED, not(Exclusions { status: Some(Status::Completed), ..Exclusions::default() })),
        ("payload", MOST_PAYLOADS, EventFilter { payload: payload("a.b", "1"), ..any() }),
        // Each has its source, and the rows of the one that leads never match the other.
        (
            "COMPLETED of another worker",
            MOST_EXAMINED,
            EventFilter { worker_id: Some("nobody:1".into()), status: Some(Status::Completed), ..any() },
        ),
    ]
}

/// What no index serves is searched for in steps. A step costs the same wherever it begins, and says where it ended.
#[tokio::test(flavor = "multi_thread")]
async fn searches_without_an_index_have_a_bounded_cost_and_say_how_far_they_got() {
    let app = app().await;
    let _states = STATES_IN_USE.lock().await;
    for (name, most, filter) in without_index() {
        for (descending, after) in [(false, None), (true, None), (false, Some(500_000)), (true, Some(500_000))] {
            let started = std::time::Instant::now();
            let (found, buffers) = list(&app, 1, &filter, Page { after, ..page(descending) }).await;
            let end = found.end.expect("a position");
            let examined = (end - after.unwrap_or(if descending { EVENTS } else { 0 })).abs();
            println!("{name}, after {after:?}: {buffers} buffers for {examined} events, {:?}", started.elapsed() / 2);
            assert!(found.events.is_empty() && found.searched_to.is_some(), "{name}");
            assert_eq!((found.total, found.total_is_exact), (0, false), "{name}");
            assert!(buffers <= most, "{name}, after {after:?}: {buffers} buffers");
            assert!(examined >= 1_990, "{name}: only {examined} events");
        }
    }
    // Another filter leads, and what has no index is checked on what it finds.
    for (name, _, filter) in without_index().into_iter().filter(|(name, ..)| *name != "not text") {
        let both = EventFilter { event_type: Some("few".into()), ..filter };
        finds(&app, &format!("{name} of a rare type"), 1, &both, &[]).await;
    }
    let both = EventFilter { event_type: Some("few".into()), text: Some("A job".into()), ..any() };
    finds(&app, "text of a rare type", 1, &both, &[300_007, 600_007, 900_007]).await;
}

/// The most that a page may cost that examines 10,000 events with one look-up each.
const MOST_OF_TWO: i64 = 45_000;

/// Two filters with 50,000 events each, and none of both: the worst that two filters can do.
#[tokio::test(flavor = "multi_thread")]
async fn two_common_filters_that_never_meet_have_a_bounded_cost_and_say_how_far_they_got() {
    let app = app().await;
    let filter = EventFilter { tags: vec!["left".into()], event_type: Some("right".into()), ..any() };
    for (descending, first) in [(false, 100_001), (true, 200_000)] {
        let (mut after, mut examined) = (None, Vec::new());
        loop {
            let (found, buffers) = list(&app, 1, &filter, Page { after, ..page(descending) }).await;
            println!("never both, after {after:?}, descending: {descending}: {buffers} buffers");
            // Behind a cursor, the total is searched for from the beginning, too.
            let most = if after.is_none() { MOST_OF_TWO } else { 2 * MOST_OF_TWO };
            assert!(buffers <= most, "after {after:?}: {buffers} buffers");
            assert_eq!((ids(&found), found.total, found.total_is_exact), (vec![], 0, false));
            let Some(end) = found.end else {
                assert_eq!(found.searched_to, None);
                break;
            };
            assert_eq!(found.searched_to, Some(created_at(&app, end).await));
            examined.push((end - after.unwrap_or(first)).abs());
            after = Some(end);
        }
        // Every other id, 10,000 per page.
        assert_eq!(examined.len(), 5, "{examined:?}");
        assert!(examined.iter().all(|ids| (19_998..=20_000).contains(ids)), "{examined:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn large_payloads_are_read_up_to_a_size() {
    let app = app().await;
    let filter = EventFilter { payload: payload("n", "2502000"), ..any() };
    let (mut after, mut pages, mut found) = (None, 0, Vec::new());
    loop {
        let (page, buffers) = list(&app, 9, &filter, Page { after, ..page(false) }).await;
        println!("large payloads, after {after:?}: {buffers} buffers");
        assert!(buffers <= MOST_PAYLOADS, "{buffers} buffers");
        found.extend(ids(&page));
        (after, pages) = (page.end, pages + 1);
        if after.is_none() {
            break;
        }
    }
    assert_eq!((pages, found), (4, vec![2_502_000]), "512 payloads of 8 KiB are 4 MiB");
}
