//! What the page of one event among a million costs, in buffers.

use waybill::domain::ids::{EventId, NamespaceId};
use waybill::domain::scope::Scope;
use waybill::store::lists::event_life::{EventLife, read_event_life};

use super::lists::app;

/// The most that the life of an ordinary event may cost. Its week of the log is one of six.
const MOST: i64 = 150;

/// The most that it may cost if a hundred related events are counted.
const MOST_RELATED: i64 = 350;

#[tokio::test(flavor = "multi_thread")]
async fn the_life_of_one_event_among_a_million_is_found_by_indexes() {
    let app = app().await;
    let scope = Scope::new(NamespaceId(1), None);
    // `first` and `few` are related to a handful of events, `many` to nearly all.
    for (id, most) in [(1, MOST), (300_007, MOST), (500_000, MOST_RELATED), (1_000_000, MOST)] {
        let read = app.buffers_of_repeated(async |conn| read_event_life(conn, &scope, EventId(id)).await).await;
        let (Some(life), buffers): (Option<EventLife>, i64) = read else { panic!("no event {id}") };
        println!("event {id}: {buffers} buffers, {:?}, {} entries", life.related, life.entries.len());
        assert!(life.entries.len() >= 2, "event {id}");
        assert!(buffers <= most, "event {id}: {buffers} buffers");
    }
}
