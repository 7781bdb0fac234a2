//! Fields of forms that send a request to the API (`assets/forms.js`). A field is called what the JSON calls it, has a hint,
//! and a place for the reason why the API refuses it.

use maud::{Markup, html};

/// How the text of a field becomes JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    Number,
    /// A list of texts, separated by commas.
    Commas,
    /// A list of texts, one per line.
    Lines,
    /// JSON, sent as it is written.
    Json,
    /// A local time, sent as a timestamp.
    Time,
    /// A text that the browser does not show.
    Secret,
}

impl Kind {
    /// Returns the name that the script has for it.
    fn name(self) -> &'static str {
        match self {
            Kind::Text | Kind::Secret => "text",
            Kind::Number => "number",
            Kind::Commas => "commas",
            Kind::Lines => "lines",
            Kind::Json => "json",
            Kind::Time => "time",
        }
    }

    fn input_type(self) -> &'static str {
        match self {
            Kind::Secret => "password",
            Kind::Time => "datetime-local",
            _ => "text",
        }
    }
}

/// A field of a form.
#[derive(Debug, Clone, Copy)]
pub(super) struct Field<'a> {
    /// The path in the body, such as `limits.sources`.
    name: &'a str,
    kind: Kind,
    value: &'a str,
    /// The JSON that is sent if nobody has changed the value, which is the same JSON for people.
    stored: Option<&'a str>,
    hint: &'a str,
    /// What an empty field becomes: `omit`, `null` or `text`.
    empty: &'a str,
    /// Where the field is sent: `path` or `query`, instead of in the body.
    sent_in: Option<&'a str>,
    is_required: bool,
}

impl<'a> Field<'a> {
    pub(super) fn new(name: &'a str, kind: Kind) -> Self {
        Field { name, kind, value: "", stored: None, hint: "", empty: "omit", sent_in: None, is_required: false }
    }

    pub(super) fn value(self, value: &'a str) -> Self {
        Field { value, ..self }
    }

    /// Sets JSON as it is stored. It is sent as it is unless somebody changes it, whatever it looks like.
    pub(super) fn stored(self, stored: &'a str) -> Self {
        Field { stored: Some(stored), ..self }
    }

    pub(super) fn hint(self, hint: &'a str) -> Self {
        Field { hint, ..self }
    }

    /// An empty field removes what was there, or restores the default.
    pub(super) fn or_null(self) -> Self {
        Field { empty: "null", ..self }
    }

    /// An empty field is an empty text, or an empty list.
    pub(super) fn or_empty(self) -> Self {
        Field { empty: "text", ..self }
    }

    /// The field is a part of the path of the request.
    pub(super) fn in_path(self) -> Self {
        Field { sent_in: Some("path"), ..self }
    }

    pub(super) fn required(self) -> Self {
        Field { is_required: true, ..self }
    }

    pub(super) fn render(&self) -> Markup {
        let Field { name, kind, value, stored, hint, empty, sent_in, is_required } = *self;
        let (id, about) = (format!("field-{name}"), format!("hint-{name} error-{name}"));
        html! {
            div.field {
                label for=(id) { (last_part(name)) @if is_required { span.muted { " (required)" } } }
                @if matches!(kind, Kind::Json | Kind::Lines) {
                    textarea id=(id) name=(name) data-kind=(kind.name()) data-empty=(empty) required[is_required]
                        data-stored=[stored] aria-describedby=(about) spellcheck="false" { (value) }
                } @else {
                    input id=(id) name=(name) type=(kind.input_type()) value=(value) data-kind=(kind.name())
                        data-empty=(empty) data-in=[sent_in] required[is_required] aria-describedby=(about)
                        autocomplete="off" spellcheck="false" inputmode=[(kind == Kind::Number).then_some("decimal")];
                }
                (notes(name, hint))
            }
        }
    }
}

/// Returns the hint of a field, and the place of the reason why it is refused.
fn notes(name: &str, hint: &str) -> Markup {
    html! {
        p.hint id=(format!("hint-{name}")) { (hint) }
        p.error id=(format!("error-{name}")) data-error-of=(name) role="alert" {}
    }
}

/// Returns the name of a field without those of the objects around it.
fn last_part(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or(name)
}

/// Returns a box that is `true` or `false`.
pub(super) fn check_box(name: &str, is_checked: bool, hint: &str, sent_in: Option<&str>) -> Markup {
    html! {
        label.check {
            input name=(name) type="checkbox" checked[is_checked] data-in=[sent_in] aria-describedby=(format!("hint-{name}"));
            " " (last_part(name))
        }
        (notes(name, hint))
    }
}

/// Returns boxes of which those that are checked become a list of texts.
pub(super) fn check_boxes(name: &str, choices: &[(&str, &str)]) -> Markup {
    html! {
        fieldset {
            legend { (name) }
            @for (value, meaning) in choices {
                label.check {
                    input name=(name) type="checkbox" value=(value) data-item;
                    " " (value) " " span.muted { (meaning) }
                }
            }
            p.error data-error-of=(name) role="alert" {}
        }
    }
}

/// Returns a choice of one of some values. The empty value is left out of the request.
pub(super) fn select(name: &str, choices: &[(&str, &str)], chosen: &str, hint: &str) -> Markup {
    let id = format!("field-{name}");
    html! {
        label for=(id) { (last_part(name)) }
        select id=(id) name=(name) aria-describedby=(format!("hint-{name}")) {
            @for (value, label) in choices { option value=(value) selected[*value == chosen] { (label) } }
        }
        (notes(name, hint))
    }
}

/// Returns the buttons below a form.
pub(super) fn buttons(label: &str) -> Markup {
    html! {
        div.actions {
            button.primary { (label) }
            button type="button" data-form-curl { "Copy as curl" }
        }
    }
}
