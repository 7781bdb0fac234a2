//! What lists of many matches cost, and their totals.

use waybill::domain::status::Status;
use waybill::store::lists::event_filter::Exclusions;
use waybill::store::lists::events::EventFilter;
use waybill::store::lists::pages::Page;

use super::{Ends, MOST, STATES_IN_USE, any, app, by_word, created_at, ids, list, page};
use crate::support::App;

/// The same for a full page of completed events: ids of the log are compared with those of events first.
const MOST_OF_COMPLETED: i64 = 250;

/// The most that counting to the total may cost: up to 1,000 along the source, or up to 100 with a look-up for each.
pub(super) const MOST_TO_COUNT: i64 = 600;

/// The most that the total may cost if the rows of 1,000 events must be looked up for a second field.
const MOST_TO_COUNT_TWO_FIELDS: i64 = 5_000;

/// Returns what the first page costs without its total: a search behind a cursor does not count.
async fn cost_without_total(app: &App, namespace: i32, filter: &EventFilter, descending: bool) -> i64 {
    let not = Exclusions { event_type: Some("unused".into()), ..Exclusions::default() };
    let after = Some(if descending { 9_007_199_254_740_991 } else { 0 });
    let (found, buffers) =
        list(app, namespace, &EventFilter { not, ..filter.clone() }, Page { after, ..page(descending) }).await;
    assert_eq!((found.events.len(), found.total), (20, 20));
    buffers
}

/// A list of more matches than a total counts.
pub(super) struct Many<'a> {
    pub name: &'a str,
    pub namespace: i32,
    pub filter: EventFilter,
    /// The same filter as an SQL condition on `events e` and `deliveries d`.
    pub condition: &'a str,
    pub total: i64,
    pub most_to_count: i64,
}

impl Many<'_> {
    /// Asserts that the first page has the first events in both orders, that it costs at most `MOST` buffers without the
    /// total, and that counting on to the total costs at most `most_to_count`.
    pub(super) async fn find(&self, app: &App) {
        let Many { name, namespace, ref filter, condition, total, most_to_count } = *self;
        let most = if filter.status == Some(Status::Completed) { MOST_OF_COMPLETED } else { MOST };
        let matching = format!(
            "SELECT id FROM waybill.events e JOIN waybill.deliveries d USING (namespace_id, id) \
             WHERE namespace_id = {namespace} AND {condition}"
        );
        let wanted = Ends::of(app, &matching).await;
        for descending in [false, true] {
            let (found, buffers) = list(app, namespace, filter, page(descending)).await;
            assert_eq!(ids(&found), wanted.page(descending), "{name}, descending: {descending}");
            assert_eq!((found.events.len(), found.total, found.total_is_exact), (20, total, false), "{name}");
            assert!(found.end.is_some() && found.searched_to.is_none(), "{name}");
            let alone = cost_without_total(app, namespace, filter, descending).await;
            println!("{name}, descending: {descending}: {alone} buffers, and {} to count", buffers - alone);
            assert!(alone <= most, "{name}, descending: {descending}: {alone} buffers");
            assert!(buffers - alone <= most_to_count, "{name}: {} buffers to count", buffers - alone);
        }
    }
}

/// A page of many matches costs as little. To count them costs as little again, unless there are two fields: then each
/// event is looked up, up to 1,000.
#[tokio::test(flavor = "multi_thread")]
async fn the_first_page_of_many_matches_costs_as_little_and_their_count_is_bounded() {
    let app = app().await;
    let _states = STATES_IN_USE.lock().await;
    let status = |status: Status| EventFilter { status: Some(status), ..any() };
    let since = created_at(&app, 500_000).await;
    let by_time = format!("e.created_at >= '{}'", since.to_rfc3339());
    let mut cases = vec![
        ("all", 1, any(), "true"),
        ("PENDING", 3, status(Status::Pending), "d.status = 'PENDING'"),
        ("time", 1, EventFilter { since: Some(since), ..any() }, &by_time),
    ];
    let conditions =
        ["e.tags = 'many'", "", "e.event_type = 'many'", "e.correlation_id = 'many'", "e.ordering_key = 'many'"];
    let fields = by_word("many").into_iter().zip(conditions).filter(|((field, _), _)| *field != "second tag");
    cases.extend(fields.map(|((name, filter), condition)| (name, 1, filter, condition)));
    for (name, namespace, filter, condition) in cases {
        Many { name, namespace, filter, condition, total: 1_000, most_to_count: MOST_TO_COUNT }.find(&app).await;
    }
    let completed = Many {
        name: "COMPLETED",
        namespace: 1,
        filter: status(Status::Completed),
        condition: "d.status = 'COMPLETED'",
        total: 100,
        most_to_count: MOST_TO_COUNT,
    };
    completed.find(&app).await;
    let both = Many {
        name: "COMPLETED and a tag",
        filter: EventFilter { tags: vec!["many".into()], ..status(Status::Completed) },
        condition: "d.status = 'COMPLETED' AND e.tags = 'many'",
        total: 1_000,
        most_to_count: MOST_TO_COUNT_TWO_FIELDS,
        ..completed
    };
    both.find(&app).await;
}
