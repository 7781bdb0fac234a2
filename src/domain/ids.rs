//! Identifiers, one type each, so that a delivery is never looked up by the id of an event.

use std::fmt;
use std::num::ParseIntError;
use std::str::FromStr;

use log::kv::ToValue;
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

        impl From<$number> for $name {
            fn from(number: $number) -> Self {
                $name(number)
            }
        }

        impl ToValue for $name {
            fn to_value(&self) -> log::kv::Value<'_> {
                self.0.to_value()
            }
        }

        impl From<$name> for serde_json::Value {
            fn from(id: $name) -> Self {
                id.0.into()
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

id!(
    /// An event.
    EventId(i64)
);

id!(
    /// One consumer's work on an event: the event's own, which workers pull, or a push.
    DeliveryId(i64)
);

id!(
    /// One claim of a delivery. Each claim gets a higher number than the one before it.
    LeaseId(i64)
);

id!(
    /// A subscription.
    SubscriptionId(i64)
);

impl LeaseId {
    /// The lease of a delivery that was never claimed.
    pub const NONE: LeaseId = LeaseId(0);
}

impl EventId {
    /// Returns the delivery that workers pull: it shares the event's number.
    pub fn own_delivery(self) -> DeliveryId {
        DeliveryId(self.0)
    }
}
