//! `waybill secrets`.

use indicatif::{ProgressBar, ProgressStyle};

use crate::config::{RotateArgs, SecretsCommand};
use crate::domain::encryption::{Keyring, SecretKey};
use crate::engine::operate::key_rotation::{FoundKey, KeyRotation, RotationReport};
use crate::error::Error;
use crate::logging;
use crate::postgres::PostgresError;
use crate::startup::{StartError, data_dir_without_database, open_database};

/// Runs one of the commands.
pub(crate) async fn run(command: SecretsCommand) -> Result<(), StartError> {
    match command {
        SecretsCommand::Rotate(args) => rotate(args).await,
        SecretsCommand::GenerateKey => {
            println!("{}", SecretKey::generate().map_err(Error::Internal)?);
            Ok(())
        }
    }
}

/// Encrypts all stored secrets with the first key.
async fn rotate(args: RotateArgs) -> Result<(), StartError> {
    logging::init(&args.logging);
    let keys = args.secrets.keyring().map_err(StartError::Settings)?;
    if keys.first_id().is_none() && !args.dry_run {
        let none = "there is no key to encrypt with: set WAYBILL_SECRET_KEY or --secret-key-file";
        return Err(StartError::Settings(none.into()));
    }
    if let Some(data_dir) = data_dir_without_database(&args.database)? {
        return Err(PostgresError::NoCluster { data_dir }.into());
    }
    let (url, cluster) = open_database(&args.database, 1).await?;
    let rotated = rotate_at(&url, &keys, args.dry_run).await;
    if let Some(cluster) = cluster {
        let _ = tokio::task::spawn_blocking(move || cluster.stop()).await;
    }
    let report = rotated?;
    print(&report, &keys, args.dry_run);
    check(&report, args.dry_run)
}

async fn rotate_at(url: &str, keys: &Keyring, is_dry_run: bool) -> Result<RotationReport, Error> {
    let style = ProgressStyle::with_template("{spinner} {msg}");
    let bar = ProgressBar::new_spinner().with_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
    let on_progress = |report: &RotationReport| {
        bar.set_message(format!("{} rows read, {} rows changed", report.rows_read, report.rows_replaced));
        bar.tick();
    };
    let rotated = KeyRotation::open(url, keys.clone(), is_dry_run, on_progress).await?.run().await;
    bar.finish_and_clear();
    rotated
}

fn print(report: &RotationReport, keys: &Keyring, is_dry_run: bool) {
    for ((table, key), values) in &report.found {
        let key = match key {
            FoundKey::Plain => "not encrypted".to_owned(),
            FoundKey::Key(id) if keys.first_id() == Some(id) => format!("key {id} (the first)"),
            FoundKey::Key(id) if keys.has(id) => format!("key {id}"),
            FoundKey::Key(id) => format!("key {id} (unknown)"),
            FoundKey::Unknown => "in no known form".to_owned(),
        };
        println!("{values:>9}  {table:<30}  {key}");
    }
    if !is_dry_run {
        println!("{} rows were encrypted again", report.rows_replaced);
    }
    for unreadable in &report.unreadable {
        eprintln!("waybill: {unreadable}");
    }
}

/// Returns an error if the old keys are still needed.
fn check(report: &RotationReport, is_dry_run: bool) -> Result<(), StartError> {
    let problem = match report {
        RotationReport { unreadable_count: count @ 1.., .. } => {
            format!("{count} values cannot be decrypted and were left as they are")
        }
        RotationReport { is_complete: false, .. } if !is_dry_run => {
            "some values are not encrypted with the first key yet: run the command again when all servers have it as \
             their first one"
                .to_owned()
        }
        _ => return Ok(()),
    };
    Err(StartError::Settings(problem))
}
