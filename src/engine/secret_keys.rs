//! What a server says about the keys of its secrets when it starts.

use crate::engine::Engine;
use crate::error::Error;
use crate::store::tables::stored_secrets::count_secret_keys;

impl Engine {
    /// Logs with which key secrets are encrypted, and which stored secrets this server cannot decrypt.
    pub(crate) async fn report_secret_keys(&self) -> Result<(), Error> {
        let keys = &self.settings().secret_keys;
        let mut conn = self.database().connection().await?;
        let found = count_secret_keys(&mut conn).await?;
        drop(conn);
        match keys.first_id() {
            Some(id) => log::info!(key_id = id; "webhook secrets and header values are stored encrypted"),
            None => log::warn!("webhook secrets and header values are stored as they are: no secret key is set"),
        }
        for count in found {
            match count.key_id.as_deref() {
                None if keys.first_id().is_some() => {
                    log::warn!(values = count.values; "some secrets are not encrypted yet: run waybill secrets rotate");
                }
                Some(id) if !keys.has(id) => log::error!(
                    key_id = id, values = count.values;
                    "some secrets are encrypted with a key that this server does not have: pushes that need them wait"
                ),
                _ => {}
            }
        }
        Ok(())
    }
}
