use super::*;
use crate::domain::action::Action;
use crate::domain::ids::{EventId, LeaseId, NamespaceId};
use crate::store::tables::columns::ActionColumn;
use crate::store::tables::event_log::LogEntry;

fn entry(id: i64, error_message: Option<String>) -> TailEntry {
    let entry = LogEntry {
        id,
        event_id: EventId(1),
        delivery_id: None,
        action: ActionColumn(Action::Picked),
        worker_id: None,
        lease_id: LeaseId(1),
        attempt: 1,
        status_code: None,
        execution_time_ms: None,
        error_message,
        reason: None,
        next_retry_at: None,
        error_kind: None,
        response_excerpt: None,
        subscription_version: None,
        actor: None,
        lease_seconds: None,
        created_at: DateTime::UNIX_EPOCH,
    };
    TailEntry { namespace: NamespaceId::DEFAULT, entry }
}

fn entries(ids: impl IntoIterator<Item = i64>) -> Vec<TailEntry> {
    ids.into_iter().map(|id| entry(id, None)).collect()
}

/// The last id of the log of [`begun`].
const END: i64 = BACKLOG_IDS + 2_000;

/// Returns entries of a log that is settled up to [`END`]. The last two are [`END`] - 100 and [`END`] - 10.
fn begun() -> RecentEntries {
    let mut recent = RecentEntries::default();
    let read = recent.next_read(END).expect("nothing was read yet");
    assert_eq!((read.above, read.up_to, read.since), (2_000, 2_000 + IDS_PER_READ, None));
    recent.add(read, read.up_to, entries([2_500]));
    assert_eq!(recent.present_end(), None, "it is not at the end yet");
    while let Some(read) = recent.next_read(END) {
        assert_eq!(read.above, 2_500);
        recent.add(read, read.up_to, if read.is_last { entries([END - 100, END - 10]) } else { Vec::new() });
    }
    assert_eq!(recent.present_end(), Some(END - 10));
    recent
}

fn ids_behind(recent: &RecentEntries, position: i64) -> Vec<i64> {
    match recent.find_behind(position) {
        Found::Batch(batch) => batch.entries.iter().map(|entry| entry.entry.id).collect(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_position_is_that_of_an_entry_and_what_follows_is_read_from_there() {
    let mut recent = begun();
    assert_eq!(recent.end(), Some(END - 10));
    assert_eq!(recent.next_read(END), None, "all of it is known");
    let read = recent.next_read(END + 5).expect("more is settled");
    assert_eq!(read.above, END - 10);
    assert_eq!(read.since, Some(DateTime::UNIX_EPOCH - MARGIN));
    recent.add(read, END + 5, Vec::new());
    assert_eq!((recent.end(), recent.next_read(END + 5)), (Some(END - 10), None));
}

#[test]
fn ids_without_entries_are_passed_over_in_steps() {
    let mut recent = begun();
    let settled = END + 3 * IDS_PER_READ;
    let mut steps = Vec::new();
    while let Some(read) = recent.next_read(settled) {
        steps.push((read.above, read.up_to));
        recent.add(read, read.up_to, Vec::new());
    }
    assert_eq!(steps, [1, 2, 3].map(|step| (END - 10, END + step * IDS_PER_READ)));
}

#[test]
fn each_position_leads_to_the_batch_behind_it() {
    let mut recent = begun();
    let read = recent.next_read(END + 100).expect("more is settled");
    recent.add(read, END + 100, entries([END + 1, END + 100]));
    assert_eq!(ids_behind(&recent, END - 101), [END - 100, END - 10]);
    assert_eq!(ids_behind(&recent, END - 100), [END - 100, END - 10]);
    assert_eq!(ids_behind(&recent, END - 10), [END + 1, END + 100]);
    assert_eq!(ids_behind(&recent, END + 50), [END + 1, END + 100]);
    assert!(matches!(recent.find_behind(END + 100), Found::Nothing));
    assert!(matches!(recent.find_behind(END + 5_000), Found::Nothing));
    assert!(matches!(recent.find_behind(17), Found::Dropped(above) if above == 2_000));
}

#[test]
fn the_first_read_begins_even_an_empty_log() {
    let mut recent = RecentEntries::default();
    assert!(matches!(recent.find_behind(0), Found::Unknown));
    let read = recent.next_read(0).expect("nothing was read yet");
    recent.add(read, 0, Vec::new());
    assert!(matches!(recent.find_behind(0), Found::Nothing));
    assert_eq!((recent.end(), recent.next_read(0)), (Some(0), None));
}

#[test]
fn old_entries_are_dropped_when_all_take_too_much_memory() {
    let mut recent = begun();
    let mut id = END;
    while !matches!(recent.find_behind(END - 10), Found::Dropped(_)) {
        id += 1;
        let read = recent.next_read(id).expect("more is settled");
        recent.add(read, id, vec![entry(id, Some("x".repeat(MAX_BYTES / 8)))]);
        assert!(recent.bytes <= MAX_BYTES, "{}", recent.bytes);
    }
    assert_eq!(recent.batches.len(), 7);
    assert_eq!(ids_behind(&recent, id - 1), [id]);
}

#[test]
fn after_a_long_outage_or_a_restore_it_begins_anew() {
    for settled in [END + 1 + MAX_MISSED_IDS, 50] {
        let mut recent = begun();
        let late = recent.next_read(END + 1).expect("more is settled");
        let read = recent.next_read(settled).expect("nothing is known");
        assert_eq!((read.above, read.generation), ((settled - BACKLOG_IDS).max(0), late.generation + 1));
        recent.add(late, END + 1, entries([END + 1]));
        assert!(
            matches!(recent.find_behind(END - 10), Found::Unknown),
            "what was read for the former generation is dropped"
        );
    }
}
