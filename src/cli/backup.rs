//! `waybill backup`: writes a backup while servers run, and checks one.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use chrono::Utc;
use serde_json::{Value, json};

use super::error::CliError;
use super::transfer_progress::{TransferProgress, Unit};
use crate::backup::dump::{Source, dump};
use crate::backup::file::{BackupFile, Draft, Manifest};
use crate::config::{BackupArgs, BackupVerb, DatabaseArgs, VerifyArgs};
use crate::error::Error;
use crate::logging;
use crate::postgres::{PostgresError, Tools};

use crate::startup::{StartError, data_dir_without_database, reach_database};
use crate::store::backup::{APPLICATION, CopyWatch, SCHEMA, take_snapshot};
use crate::store::connection::address::DatabaseAddress;

/// The time between two looks at how far a backup is.
const WATCH_INTERVAL: Duration = Duration::from_millis(250);

pub(crate) async fn run(args: BackupArgs) -> Result<(), CliError> {
    match (args.verb, args.target) {
        (Some(BackupVerb::Verify(args)), _) => verify(args).await,
        (None, Some(target)) => {
            logging::init(&args.logging);
            create(target, args.json, &args.database).await
        }
        (None, None) => Err(CliError::Usage("name the file to write, or a folder".into())),
    }
}

/// Writes a backup. Connects to the embedded PostgreSQL of a server that runs, and otherwise starts it.
async fn create(target: PathBuf, as_json: bool, args: &DatabaseArgs) -> Result<(), CliError> {
    let started = Instant::now();
    // Before the database is opened, which may take a while. A file that is there is never replaced.
    let draft = Draft::create(&target, Utc::now()).map_err(failed)?;
    if let Some(data_dir) = data_dir_without_database(args)? {
        return Err(StartError::from(PostgresError::NoCluster { data_dir }).into());
    }
    let (url, cluster) = reach_database(args).await?;
    let bin_dir = cluster.as_ref().map(|cluster| cluster.bin_dir().to_path_buf()).or_else(|| args.pg_bin.clone());
    let written = write(&url, bin_dir, draft).await;
    if let Some(cluster) = cluster {
        let _ = tokio::task::spawn_blocking(move || cluster.stop()).await;
    }
    let (file, manifest) = written?;
    let mut summary = describe(&file, &manifest);
    summary["seconds"] = json!(started.elapsed().as_millis() as f64 / 1000.0);
    show("wrote", &summary, as_json);
    Ok(())
}

async fn write(url: &str, bin_dir: Option<PathBuf>, mut draft: Draft) -> Result<(PathBuf, Manifest), CliError> {
    let snapshot = take_snapshot(url).await?;
    let mut manifest = Manifest {
        waybill: env!("CARGO_PKG_VERSION").to_owned(),
        postgresql: snapshot.state.postgresql.clone(),
        taken_at: snapshot.state.taken_at,
        epoch: snapshot.state.epoch.clone(),
        last_id: snapshot.state.last_id,
        schema: snapshot.state.schema.clone(),
        tables: snapshot.tables.clone(),
        archive_bytes: 0,
        archive_sha256: String::new(),
    };
    let tools = Tools::find(bin_dir.as_deref(), manifest.postgresql_major()).map_err(StartError::from)?;
    let connection = DatabaseAddress::parse(url).map_err(StartError::from)?.libpq_variables(APPLICATION);
    let progress = Arc::new(TransferProgress::new("backup", Unit::Rows, manifest.rows().unsigned_abs()));
    let bytes_written = Arc::new(AtomicU64::new(0));
    let watching = tokio::spawn(watch(url.to_owned(), Arc::clone(&progress), Arc::clone(&bytes_written)));
    let name = snapshot.name.clone();
    let dumping = tokio::task::spawn_blocking(move || {
        let source = Source { tools: &tools, connection: &connection, snapshot: &name, schema: SCHEMA };
        let written = dump(&source, &mut draft, &|bytes| bytes_written.store(bytes, Ordering::Relaxed));
        written.map(|written| (draft, written))
    });
    let dumped = dumping.await;
    watching.abort();
    progress.finish();
    drop(snapshot);
    let (draft, (bytes, sha256)) = dumped.map_err(|panic| Error::Internal(panic.to_string()))?.map_err(failed)?;
    (manifest.archive_bytes, manifest.archive_sha256) = (bytes, sha256);
    let file = draft.finish(&manifest).map_err(failed)?;
    Ok((file, manifest))
}

/// Shows how far a backup is, until it is aborted. A failure to look is no failure of the backup.
async fn watch(url: String, progress: Arc<TransferProgress>, bytes_written: Arc<AtomicU64>) {
    let Ok(mut watch) = CopyWatch::open(&url).await else { return };
    while let Ok(rows) = watch.count_rows().await {
        progress.set(rows.unsigned_abs());
        progress.say(format!("{} kB written", bytes_written.load(Ordering::Relaxed) / 1_000));
        tokio::time::sleep(WATCH_INTERVAL).await;
    }
}

/// Checks a backup without a database.
async fn verify(args: VerifyArgs) -> Result<(), CliError> {
    let file = args.file.clone();
    let verifying = tokio::task::spawn_blocking(move || open_verified(&file));
    let backup = verifying.await.map_err(|panic| Error::Internal(panic.to_string()))??;
    show("whole:", &describe(&args.file, &backup.manifest), args.json);
    Ok(())
}

/// Opens a backup and reads it to its end once.
pub(super) fn open_verified(file: &std::path::Path) -> Result<BackupFile, CliError> {
    let mut backup = BackupFile::open(file).map_err(failed)?;
    let progress = TransferProgress::new("checking", Unit::Bytes, backup.manifest.archive_bytes);
    let verified = backup.verify(&|bytes| progress.set(bytes));
    progress.finish();
    verified.map_err(failed)?;
    Ok(backup)
}

pub(super) fn failed(error: impl std::fmt::Display) -> CliError {
    CliError::Failed(error.to_string())
}

/// Returns what a backup contains, for programs.
pub(super) fn describe(file: &std::path::Path, manifest: &Manifest) -> Value {
    json!({
        "file": file.display().to_string(),
        "archive_bytes": manifest.archive_bytes,
        "archive_sha256": manifest.archive_sha256,
        "waybill": manifest.waybill,
        "postgresql": manifest.postgresql,
        "schema": manifest.schema,
        "taken_at": manifest.taken_at,
        "epoch": manifest.epoch,
        "last_id": manifest.last_id,
        "rows": manifest.rows(),
        "tables": manifest.tables,
    })
}

/// Prints a summary.
pub(super) fn show(verb: &str, summary: &Value, as_json: bool) {
    if as_json {
        println!("{summary}");
        return;
    }
    let text = |name: &str| summary[name].as_str().map_or_else(|| summary[name].to_string(), str::to_owned);
    println!(
        "{verb} {}: {} events and {} rows in all, {} bytes, taken at {} from PostgreSQL {}",
        text("file"),
        summary["tables"]["events"],
        text("rows"),
        text("archive_bytes"),
        text("taken_at"),
        text("postgresql"),
    );
}
