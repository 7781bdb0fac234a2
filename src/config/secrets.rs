//! Settings of the encryption of secrets at rest, and of `waybill secrets`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{DatabaseArgs, LogArgs};
use crate::domain::encryption::Keyring;

/// The variable that holds keys. It has no flag, because the arguments of a process are visible to every user of the
/// machine.
pub(super) const KEY_VARIABLE: &str = "WAYBILL_SECRET_KEY";

#[derive(Debug, Subcommand)]
pub enum SecretsCommand {
    /// Encrypt all stored secrets with the first key, while servers run, then exit.
    Rotate(RotateArgs),
    /// Print a new key, then exit.
    GenerateKey,
}

/// Settings of `waybill secrets rotate`.
#[derive(Debug, Clone, Args)]
pub struct RotateArgs {
    /// Change nothing, and show how many values are encrypted with which key.
    #[arg(long)]
    pub dry_run: bool,

    #[command(flatten)]
    pub secrets: SecretKeyArgs,

    #[command(flatten)]
    pub database: DatabaseArgs,

    #[command(flatten)]
    pub logging: LogArgs,
}

#[derive(Debug, Clone, Args)]
pub struct SecretKeyArgs {
    /// File of the keys that encrypt webhook secrets and header values in the database, one per line. The first one
    /// encrypts, the others only decrypt. WAYBILL_SECRET_KEY may hold the keys instead [default: none, secrets are
    /// stored as they are].
    #[arg(long, env = "WAYBILL_SECRET_KEY_FILE")]
    pub secret_key_file: Option<PathBuf>,
}

impl SecretKeyArgs {
    /// Reads the keys from the file or from the variable. The error does not contain a key.
    pub fn keyring(&self) -> Result<Keyring, String> {
        let variable = std::env::var_os(KEY_VARIABLE).map(std::ffi::OsString::into_string).transpose();
        self.keyring_with(variable.map_err(|_| format!("{KEY_VARIABLE} is not text"))?)
    }

    fn keyring_with(&self, variable: Option<String>) -> Result<Keyring, String> {
        // An empty value counts as unset: container tools often pass on undefined variables as empty.
        let variable = variable.filter(|keys| !keys.trim().is_empty());
        let file = self.secret_key_file.as_ref().filter(|file| !file.as_os_str().is_empty());
        match (variable, file) {
            (None, None) => Ok(Keyring::default()),
            (Some(keys), None) => Keyring::parse(&keys).map_err(|why| format!("{KEY_VARIABLE}: {why}")),
            (None, Some(file)) => {
                let keys = std::fs::read_to_string(file).map_err(|error| error.to_string());
                keys.and_then(|keys| Keyring::parse(&keys)).map_err(|why| format!("{}: {why}", file.display()))
            }
            (Some(_), Some(_)) => {
                Err(format!("the keys for secrets must be in {KEY_VARIABLE} or in --secret-key-file, not in both"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::encryption::SecretKey;

    fn at(file: Option<&str>) -> SecretKeyArgs {
        SecretKeyArgs { secret_key_file: file.map(PathBuf::from) }
    }

    #[test]
    fn keys_come_from_the_variable_or_from_the_file() {
        let keys = |count: usize| (0..count).map(|_| SecretKey::generate().unwrap()).collect::<Vec<_>>().join("\n");
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), keys(2)).unwrap();
        let path = file.path().to_str();
        assert!(at(path).keyring_with(None).unwrap().first_id().is_some());
        assert!(at(path).keyring_with(Some(" ".into())).unwrap().first_id().is_some());
        assert!(at(None).keyring_with(Some(keys(1))).unwrap().first_id().is_some());
        assert!(at(None).keyring_with(None).unwrap().first_id().is_none());
        assert!(at(path).keyring_with(Some(keys(1))).unwrap_err().contains("not in both"));
    }

    #[test]
    fn keys_that_cannot_be_used_are_refused_without_repeating_them() {
        let refused = at(None).keyring_with(Some("s3cret".into())).unwrap_err();
        assert!(refused.starts_with("WAYBILL_SECRET_KEY: key 1 ") && !refused.contains("s3cret"), "{refused}");
        assert!(at(Some("/does/not/exist")).keyring_with(None).unwrap_err().starts_with("/does/not/exist: "));
        let empty = tempfile::NamedTempFile::new().unwrap();
        assert!(at(empty.path().to_str()).keyring_with(None).unwrap_err().contains("there is no key"));
    }
}
