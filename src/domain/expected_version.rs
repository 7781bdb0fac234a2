//! The condition under which a client changes a record that has a version.

/// The versions at which a change may be made.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ExpectedVersion {
    /// The client has not restricted the version.
    #[default]
    Any,
    /// The version must be one of these. They are the client's text, which need not be a number.
    OneOf(Vec<String>),
}

impl ExpectedVersion {
    /// Returns whether a change may be made at this version.
    pub fn includes(&self, version: i32) -> bool {
        match self {
            ExpectedVersion::Any => true,
            ExpectedVersion::OneOf(versions) => versions.contains(&version.to_string()),
        }
    }
}
