//! The settings of the webhook client.

use std::path::PathBuf;

use crate::domain::address::AllowList;

/// Settings of a [`Client`](super::Client).
#[derive(Debug, Clone)]
pub struct WebhookSettings {
    /// Non-public networks that requests may go to.
    pub allow: AllowList,
    /// A PEM file of certificates to trust besides the system's.
    pub ca_file: Option<PathBuf>,
    /// The HTTP proxy to send through, such as `http://proxy.internal:3128`.
    pub proxy: Option<String>,
    /// The `User-Agent`, unless the request sets one.
    pub user_agent: String,
}

impl Default for WebhookSettings {
    fn default() -> Self {
        let user_agent = concat!("Waybill/", env!("CARGO_PKG_VERSION")).to_owned();
        Self { allow: AllowList::default(), ca_file: None, proxy: None, user_agent }
    }
}
