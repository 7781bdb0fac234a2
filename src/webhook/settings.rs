//! What an operator can say about sending.

use std::path::PathBuf;

use crate::domain::address::AllowList;

/// Settings of a [`Client`](super::Client).
#[derive(Debug, Clone)]
pub struct WebhookSettings {
    /// Networks that may be sent to although they are not public.
    pub allow: AllowList,
    /// A file of certificates (PEM) to trust besides those of the system.
    pub ca_file: Option<PathBuf>,
    /// The HTTP proxy to send through, such as `http://proxy.internal:3128`.
    pub proxy: Option<String>,
    /// What to call ourselves, unless the request says.
    pub user_agent: String,
}

impl Default for WebhookSettings {
    fn default() -> Self {
        let user_agent = concat!("Waybill/", env!("CARGO_PKG_VERSION")).to_owned();
        Self { allow: AllowList::default(), ca_file: None, proxy: None, user_agent }
    }
}
