//! Identifiers, one type each, so that a delivery is never looked up by the id of an event.

use std::fmt;
use std::num::ParseIntError;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Declares an identifier that is a plain number in JSON, in paths and in the database.
macro_rules! id {
    ($(#[$doc:meta])* $name:ident($number:ty)) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $number);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl FromStr for $name {
            type Err = ParseIntError;

            fn from_str(text: &str) -> Result<Self, ParseIntError> {
                text.parse().map($name)
            }
        }
    };
}

id!(
    /// The tenant that everything belongs to.
    NamespaceId(i32)
);

impl NamespaceId {
    /// The only namespace until there are tenants.
    pub const DEFAULT: NamespaceId = NamespaceId(1);
}
