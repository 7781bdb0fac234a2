//! A source as a server keeps it in memory.

use chrono::{DateTime, Utc};

use crate::domain::encryption::{Binding, Field, Keyring, Owner};
use crate::domain::ids::SourceKey;
use crate::domain::source::{Rejection, SourceSecret, SourceSpec, Webhook};
use crate::error::Error;
use crate::store::tables::sources::LoadedSource;

/// An active source, with its secrets decrypted.
#[derive(Debug)]
pub(crate) struct Source {
    pub key: SourceKey,
    /// The settings. `None` if a later version of the server wrote something that this version does not know.
    spec: Option<SourceSpec>,
    secrets: Vec<KeptSecret>,
}

/// A secret, with the time when it expires.
#[derive(Debug)]
struct KeptSecret {
    /// `None` if this server cannot decrypt it.
    secret: Option<SourceSecret>,
    expires_at: Option<DateTime<Utc>>,
}

impl Source {
    pub(super) fn of(loaded: LoadedSource, keys: &Keyring) -> Self {
        let LoadedSource { key, spec, secrets } = loaded;
        let binding = Binding { owner: Owner::Source(key), field: Field::Secret };
        let secrets = secrets.into_iter().map(|(stored, expires_at)| {
            let secret = keys.decrypt(&stored, &binding);
            let secret =
                secret.inspect_err(|error| log::error!(source_id = key.id; "webhooks may be refused: {error}"));
            KeptSecret { secret: secret.ok().map(SourceSecret::from_stored), expires_at }
        });
        Source { key, spec: SourceSpec::from_stored(&spec), secrets: secrets.collect() }
    }

    /// Returns the settings.
    pub(crate) fn spec(&self) -> Result<&SourceSpec, Error> {
        self.spec.as_ref().ok_or_else(|| Error::Internal(format!("the settings of source {} are unknown", self.key.id)))
    }

    /// Checks that the sender of this source has sent a webhook.
    pub(crate) fn verify(&self, webhook: &Webhook<'_>, now: DateTime<Utc>) -> Result<(), Error> {
        let in_use = || self.secrets.iter().filter(|kept| kept.expires_at.is_none_or(|at| at > now));
        let secrets: Vec<&SourceSecret> = in_use().filter_map(|kept| kept.secret.as_ref()).collect();
        let seconds = now.timestamp_micros() as f64 / 1e6;
        match self.spec()?.verify.check(&secrets, webhook, seconds) {
            // It may have been signed with a secret that this server cannot read: that is not the sender's fault.
            Err(Rejection::Mismatch) if in_use().any(|kept| kept.secret.is_none()) => {
                Err(Error::Internal(format!("a secret of source {} cannot be decrypted", self.key.id)))
            }
            Err(rejection) => Err(Error::WebhookRefused(rejection)),
            Ok(()) => Ok(()),
        }
    }
}
