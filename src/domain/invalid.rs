//! What is wrong with an input, said so that a person finds the place.

use serde::Serialize;

/// One thing that is wrong with one field.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Invalid {
    /// Where: `title`, `tags[2]`, `events[7].payload`.
    pub field: String,
    /// Why, as the end of a sentence that starts with the field.
    pub reason: String,
}

impl Invalid {
    /// `field` is wrong because of `reason`.
    pub fn new(field: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { field: field.into(), reason: reason.into() }
    }

    /// The same complaint, seen from the outside of the object called `parent`.
    #[must_use]
    pub fn inside(mut self, parent: &str) -> Self {
        self.field = format!("{parent}.{}", self.field);
        self
    }
}
