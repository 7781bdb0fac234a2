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
    /// The namespace `default`, which always exists.
    pub const DEFAULT: NamespaceId = NamespaceId(1);

    /// Returns the key of an event of this namespace.
    pub fn event(self, id: EventId) -> EventKey {
        EventKey { namespace: self, id }
    }

    /// Returns the key of a delivery of this namespace.
    pub fn delivery(self, id: DeliveryId) -> DeliveryKey {
        DeliveryKey { namespace: self, id }
    }

    /// Returns the key of a subscription of this namespace.
    pub fn subscription(self, id: SubscriptionId) -> SubscriptionKey {
        SubscriptionKey { namespace: self, id }
    }

    /// Returns the key of a source of this namespace.
    pub fn source(self, id: SourceId) -> SourceKey {
        SourceKey { namespace: self, id }
    }
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

id!(
    /// A source of webhooks.
    SourceId(i64)
);

id!(
    /// An API key.
    KeyId(i64)
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

/// Declares the key of a row: its id, and the namespace that it must be in. Rows of many namespaces are handled
/// together, so nothing is looked up by its id alone. Keys are in the order in which rows are locked.
macro_rules! key {
    ($(#[$doc:meta])* $name:ident($id:ty)) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name {
            pub namespace: NamespaceId,
            pub id: $id,
        }
    };
}

key!(
    /// An event in its namespace.
    EventKey(EventId)
);

key!(
    /// A delivery in its namespace.
    DeliveryKey(DeliveryId)
);

key!(
    /// A subscription in its namespace.
    SubscriptionKey(SubscriptionId)
);

key!(
    /// A source in its namespace.
    SourceKey(SourceId)
);

/// Returns the keys of rows that a statement returned as two lists.
pub fn delivery_keys(namespaces: &[NamespaceId], ids: &[DeliveryId]) -> Vec<DeliveryKey> {
    namespaces.iter().zip(ids).map(|(namespace, id)| namespace.delivery(*id)).collect()
}
