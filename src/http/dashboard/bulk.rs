//! The buttons above a list: what can be done with the selected rows, and with all that match.

use maud::{Markup, html};
use serde::Serialize;

use super::asking::ReasonIn;
use super::viewer::Viewer;

/// What can be done with rows.
pub(super) struct BulkVerb<'a> {
    pub label: &'a str,
    pub way: BulkWay<'a>,
    /// Whether it ends something.
    pub is_danger: bool,
}

/// How many rows are changed.
pub(super) enum BulkWay<'a> {
    /// By an operation that this path starts, on all that match or on those that are selected. `chosen` are further
    /// fields of the filter for the latter, as JSON.
    Operation { path: &'a str, chosen: Option<&'a str> },
    /// By a request for each row that is selected, to this path with `{id}`.
    EachRow { path: &'a str, reason: ReasonIn },
}

impl BulkVerb<'_> {
    fn button(&self) -> Markup {
        let (path, chosen, one, reason) = match &self.way {
            BulkWay::Operation { path, chosen } => (Some(*path), *chosen, None, None),
            BulkWay::EachRow { path, reason } => (None, None, Some(*path), Some(reason.as_str())),
        };
        html! {
            button type="button" class=[self.is_danger.then_some("danger")] data-bulk data-verb=(self.label)
                data-path=[path] data-chosen=[chosen] data-one=[one] data-reason=[reason] { (self.label) }
        }
    }
}

/// Returns the buttons of a list of `noun`, whose filter is that of the operations. `total` is how many match.
pub(super) fn bulk_bar(
    viewer: &Viewer,
    noun: &str,
    filter: &impl Serialize,
    verbs: &[BulkVerb<'_>],
    total: &Markup,
) -> Markup {
    if !viewer.may_operate() || verbs.is_empty() {
        return html! {};
    }
    html! {
        span.actions data-filter=(serde_json::to_string(filter).unwrap_or_default()) data-noun=(noun) {
            @for verb in verbs { (verb.button()) }
            label.nowrap.pick { input type="checkbox" data-all-match; " all " (total) "that match" }
        }
    }
}

/// Returns the heading of the column with which rows are selected.
pub(super) fn select_all(viewer: &Viewer) -> Markup {
    html! {
        @if viewer.may_operate() { th { input type="checkbox" data-select-all aria-label="Select all on this page"; } }
    }
}

/// Returns the cell with which a row is selected. Its label makes the place to touch larger than the box.
pub(super) fn select_one(viewer: &Viewer, noun: &str, id: i64) -> Markup {
    html! {
        @if viewer.may_operate() {
            td.select { label.pick { input type="checkbox" data-select value=(id) aria-label=(format!("Select {noun} {id}")); } }
        }
    }
}
