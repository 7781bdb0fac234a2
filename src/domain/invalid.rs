//! An error about one field of an input.

use serde::Serialize;

/// An error about one field.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Invalid {
    /// The field: `title`, `tags[2]`, `events[7].payload`. Empty for the whole input.
    pub field: String,
    /// The reason, as the end of a sentence that starts with the field.
    pub reason: String,
}

impl Invalid {
    pub fn new(field: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { field: field.into(), reason: reason.into() }
    }

    /// Returns the same error with `parent` prepended to the field.
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
    fn parent_names_are_prepended_to_the_field() {
        let named = |field: &str| Invalid::new(field, "is wrong").inside("filter").field;
        assert_eq!(named("payload.amount"), "filter.payload.amount");
        assert_eq!(named("[2].payload"), "filter[2].payload");
        assert_eq!(named(""), "filter");
    }
}
