//! What is wrong with an input, said so that a person finds the place.

use serde::Serialize;

/// One thing that is wrong with one field.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Invalid {
    /// Where: `title`, `tags[2]`, `events[7].payload`; empty for the whole of what was read.
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
        self.field = match self.field.as_str() {
            "" => parent.to_owned(),
            item if item.starts_with('[') => format!("{parent}{item}"),
            field => format!("{parent}.{field}"),
        };
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_named_from_the_outside_in() {
        let seen = |field: &str| Invalid::new(field, "is wrong").inside("filter").field;
        assert_eq!(seen("payload.amount"), "filter.payload.amount");
        assert_eq!(seen("[2].payload"), "filter[2].payload");
        assert_eq!(seen(""), "filter");
    }
}
