//! What every call carries from its HTTP request down to the statements it runs.

use std::net::IpAddr;
use std::sync::Arc;

use crate::domain::actor::ServerActor;
use crate::domain::ids::{DeliveryId, DeliveryKey, NamespaceId};
use chrono::{DateTime, Utc};

/// The namespace that a call may see, who makes it, and the time its statements use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scope {
    pub namespace: NamespaceId,
    /// Who makes the call, for what is recorded about operators' actions: the name of their key. `None` on a server
    /// without keys, and for the server's own services.
    pub actor: Option<Arc<str>>,
    /// The address of the client, for the audit log. `None` for what the server does on its own.
    pub address: Option<IpAddr>,
    /// `None` means the database's clock; tests pass a time of their own.
    pub now: Option<DateTime<Utc>>,
}

impl Scope {
    pub fn new(namespace: NamespaceId, now: Option<DateTime<Utc>>) -> Self {
        Scope { namespace, actor: None, address: None, now }
    }

    /// Returns the scope in which a service of the server works.
    pub(crate) fn of_service(self, service: ServerActor) -> Self {
        Scope { actor: Some(service.as_str().into()), ..self }
    }

    /// Returns the keys of deliveries of this namespace.
    pub(crate) fn deliveries(&self, ids: &[DeliveryId]) -> Vec<DeliveryKey> {
        ids.iter().map(|id| self.namespace.delivery(*id)).collect()
    }
}
