//! Buttons of actions that ask for a reason, show the response, or lead to another page.

use maud::Markup;

use super::parts::Action;

/// Where the reason of an action goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReasonIn {
    Query,
}

impl ReasonIn {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            ReasonIn::Query => "query",
        }
    }
}

/// A button that calls the API after a question, with more to ask or to show.
pub(super) struct AskingAction<'a> {
    pub action: Action<'a>,
    /// Whether the person may give a reason.
    pub reason: Option<ReasonIn>,
    /// Whether the response is shown.
    pub shows_answer: bool,
    /// The page to go to afterwards.
    pub next: Option<String>,
}

impl AskingAction<'_> {
    pub(super) fn button(&self) -> Markup {
        self.action.render(self.reason, self.next.as_deref(), self.shows_answer)
    }
}
