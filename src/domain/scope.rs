//! What every call carries from its HTTP request down to the statements it runs.

use crate::domain::ids::NamespaceId;
use chrono::{DateTime, Utc};

/// The namespace that a call may see, who makes it, and the time its statements use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scope {
    pub namespace: NamespaceId,
    /// The name that the caller gave, for what is recorded about operators' actions.
    pub actor: Option<String>,
    /// `None` means the database's clock; tests pass a time of their own.
    pub now: Option<DateTime<Utc>>,
}

impl Scope {
    pub fn new(namespace: NamespaceId, now: Option<DateTime<Utc>>) -> Self {
        Scope { namespace, actor: None, now }
    }

    /// Returns the same scope with the caller's name.
    pub fn with_actor(self, actor: String) -> Self {
        Scope { actor: Some(actor), ..self }
    }
}
