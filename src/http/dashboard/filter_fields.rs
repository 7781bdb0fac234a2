//! The filter of a list as a form of plain fields, named as the parameters of the API.

use std::collections::BTreeMap;

use maud::{Markup, html};

use super::viewer::Viewer;
use crate::error::Error;

/// A parameter of a list.
pub(super) enum FilterField<'a> {
    Text { name: &'a str, placeholder: &'a str },
    Choice { name: &'a str, choices: &'a [&'a str] },
}

/// Returns the form. It shows what the address says, right or wrong.
pub(super) fn filter_fields(viewer: &Viewer, fields: &[FilterField<'_>]) -> Markup {
    let (path, query) = viewer.address.split_once('?').unwrap_or((&viewer.address, ""));
    let given: BTreeMap<String, String> = url::form_urlencoded::parse(query.as_bytes()).into_owned().collect();
    html! {
        form.filters action=(path) method="get" {
            @if let Some(namespace) = &viewer.namespace { input type="hidden" name="namespace" value=(namespace); }
            @for field in fields {
                @match field {
                    FilterField::Text { name, placeholder } => {
                        label { (name) input type="text" name=(name) value=[given.get(*name)] placeholder=(placeholder) autocomplete="off"; }
                    }
                    FilterField::Choice { name, choices } => {
                        label {
                            (name)
                            select name=(name) {
                                option value="" { "any" }
                                @for choice in *choices {
                                    option value=(choice) selected[given.get(*name).is_some_and(|given| given == choice)] { (choice) }
                                }
                            }
                        }
                    }
                }
            }
            button { "Filter" }
            @if !query.is_empty() { a href=(viewer.link(path)) { "Show all" } }
        }
    }
}

/// Returns what is wrong with a request, field by field.
pub(super) fn reasons(error: &Error) -> String {
    reasons_with(error, str::to_owned)
}

/// Returns what is wrong with a request, with each field as `written` writes it.
pub(super) fn reasons_with(error: &Error, written: impl Fn(&str) -> String) -> String {
    match error {
        Error::Invalid(errors) => {
            let reason = errors.iter().map(|invalid| format!("{} {}", written(&invalid.field), invalid.reason));
            reason.collect::<Vec<_>>().join("; ")
        }
        other => other.to_string(),
    }
}
