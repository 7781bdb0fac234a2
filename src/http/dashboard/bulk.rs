//! The buttons above a list: what can be done with the selected rows, and with all that match.

use maud::{Markup, html};
use serde::Serialize;

use super::asking::ReasonIn;
use super::viewer::Viewer;

/// What can be done with rows.
pub(super) struct BulkVerb<'a> {
    pub label: &'a str,
    /// The path that starts an operation on all that match. `None` if there is none.
    pub path_of_all: Option<&'a str>,
    /// The path for one row, with `{id}`.
    pub path_of_one: &'a str,
    /// Where the reason for one row goes. That of an operation is in its body.
    pub reason: ReasonIn,
}

/// Returns the buttons of a list of `noun`, whose filter is that of the operations.
pub(super) fn bulk_bar(viewer: &Viewer, noun: &str, filter: &impl Serialize, verbs: &[BulkVerb<'_>]) -> Markup {
    if !viewer.may_operate() || verbs.is_empty() {
        return html! {};
    }
    html! {
        div.pager data-filter=(serde_json::to_string(filter).unwrap_or_default()) data-noun=(noun) {
            span.actions {
                @for verb in verbs {
                    button type="button" data-bulk data-verb=(verb.label) data-path=[verb.path_of_all]
                        data-one=(verb.path_of_one) data-reason=(verb.reason.as_str()) { (verb.label) }
                }
                label.nowrap { input type="checkbox" data-all-match; " all that match" }
            }
        }
    }
}

/// Returns the heading of the column with which rows are selected.
pub(super) fn select_all(viewer: &Viewer) -> Markup {
    html! {
        @if viewer.may_operate() { th { input type="checkbox" data-select-all aria-label="Select all on this page"; } }
    }
}

/// Returns the cell with which a row is selected.
pub(super) fn select_one(viewer: &Viewer, noun: &str, id: i64) -> Markup {
    html! {
        @if viewer.may_operate() {
            td { input type="checkbox" data-select value=(id) aria-label=(format!("Select {noun} {id}")); }
        }
    }
}
