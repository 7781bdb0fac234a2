//! What every call carries from its HTTP request down to the statements it runs.

use crate::domain::ids::NamespaceId;
use chrono::{DateTime, Utc};

/// The namespace that a call may see, who makes it, and the time its statements use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scope {
    pub namespace: NamespaceId,
    /// Who makes the call, for what is recorded about operators' actions. `None` until callers have keys.
    pub actor: Option<String>,
    /// `None` means the database's clock; tests pass a time of their own.
    pub now: Option<DateTime<Utc>>,
}

impl Scope {
    pub fn new(namespace: NamespaceId, now: Option<DateTime<Utc>>) -> Self {
        Scope { namespace, actor: None, now }
    }
}
