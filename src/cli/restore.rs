//! `waybill restore`: loads a backup into a database on which no server runs.
//!
//! Everything that can be refused is refused before the database is touched: a file that is damaged, made by a newer
//! Waybill or a newer PostgreSQL, a target that is in use or not empty. Then the database is marked, so that no server
//! starts on it and none that runs connects to it, and the backup is loaded in one transaction, which also begins a new history and removes the mark. A
//! restore that is killed changes nothing but the mark, and can be run again.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::backup::{describe, failed, open_verified, show};
use super::error::CliError;
use super::transfer_progress::{TransferProgress, Unit};
use crate::backup::file::{BackupFile, Manifest};
use crate::backup::load::{Target, load};
use crate::config::RestoreArgs;
use crate::error::Error;
use crate::logging;
use crate::postgres::Tools;
use crate::startup::{StartError, open_database};
use crate::store::backup::{
    APPLICATION, RestoreTarget, after_restore, before_restore, finish_restore, knows_schema, lock_restore,
    mark_restore, read_restore_target, unmark_restore,
};
use crate::store::connection::address::DatabaseAddress;
use crate::store::connection::migrate::migrate;

/// The time that a restore waits for the connections of servers that were just stopped: PostgreSQL closes a connection a
/// moment after its client has gone.
const CONNECTIONS_END_WITHIN: Duration = Duration::from_secs(3);

pub(crate) async fn run(args: RestoreArgs) -> Result<(), CliError> {
    logging::init(&args.logging);
    let started = Instant::now();
    let file = args.file.clone();
    let opening = tokio::task::spawn_blocking(move || open_verified(&file));
    let backup = opening.await.map_err(|panic| Error::Internal(panic.to_string()))??;
    if !knows_schema(&backup.manifest.schema)? {
        let (file, by) = (args.file.display(), &backup.manifest.waybill);
        let why = format!("{file} was made by a newer Waybill ({by}): restore it with that version or a later one");
        return Err(CliError::Failed(why));
    }
    let mut summary = describe(&args.file, &backup.manifest);
    // The lock of the data directory keeps servers away from an embedded database.
    let (url, cluster) = open_database(&args.database, 1).await?;
    let bin_dir = cluster.as_ref().map(|cluster| cluster.bin_dir().to_path_buf());
    let restored = restore(&url, bin_dir.or_else(|| args.database.pg_bin.clone()), backup, args.replace).await;
    if let Some(cluster) = cluster {
        let _ = tokio::task::spawn_blocking(move || cluster.stop()).await;
    }
    let (epoch, first_id) = restored?;
    summary["new_epoch"] = json!(epoch);
    summary["first_id"] = json!(first_id);
    summary["seconds"] = json!(started.elapsed().as_millis() as f64 / 1000.0);
    report(&summary, args.json);
    Ok(())
}

fn report(summary: &Value, as_json: bool) {
    show("restored", summary, as_json);
    if !as_json {
        println!(
            "the history {} begins, {} is over; ids go on from {}",
            summary["new_epoch"].as_str().unwrap_or_default(),
            summary["epoch"].as_str().unwrap_or_default(),
            summary["first_id"]
        );
    }
}

/// Loads a backup. Returns the epoch that has begun, and its first id.
async fn restore(
    url: &str,
    bin_dir: Option<PathBuf>,
    backup: BackupFile,
    replaces: bool,
) -> Result<(String, i64), CliError> {
    let busy = || CliError::Failed("another restore into this database is running".into());
    let _lock = lock_restore(url).await?.ok_or_else(busy)?;
    let major = check_target(url, &backup.manifest, replaces).await?;
    let tools = Tools::find(bin_dir.as_deref(), major).map_err(StartError::from)?;
    mark_restore(url).await?;
    // Again: a server may have started before the mark was there.
    let checked = check_target(url, &backup.manifest, replaces).await;
    let loaded = match checked {
        Ok(_) => load_backup(url, tools, backup, replaces).await,
        Err(error) => Err(error),
    };
    if let Err(error) = loaded {
        // Nothing has changed. If the mark stays, a server says what to do.
        if let Err(left) = unmark_restore(url).await {
            log::warn!("the mark of the restore stays in the database: {left}");
        }
        return Err(error);
    }
    // A backup of an older version.
    migrate(url).await?;
    Ok(finish_restore(url).await?)
}

/// Refuses a target that must not be touched. Returns the major version of its PostgreSQL.
async fn check_target(url: &str, manifest: &Manifest, replaces: bool) -> Result<u32, CliError> {
    let target = wait_for_servers_to_end(url).await?;
    let refuse = |why: String| Err(CliError::Failed(why));
    if target.servers > 0 {
        let servers = target.servers;
        return refuse(format!("Waybill has {servers} connections to this database: stop all servers on it first"));
    }
    if target.is_taken && !replaces {
        return refuse(
            "this database has data of Waybill already. Choose an empty one, or add --replace to drop that data".into(),
        );
    }
    let major = Manifest { postgresql: target.postgresql.clone(), ..manifest.clone() }.postgresql_major();
    if major < manifest.postgresql_major() {
        return refuse(format!(
            "the backup was taken from PostgreSQL {}, and this is {}: restore it into the same version or a newer one",
            manifest.postgresql, target.postgresql
        ));
    }
    Ok(major)
}

/// Returns the state of the target once no server has a connection to it, or when the time to wait for that is over.
async fn wait_for_servers_to_end(url: &str) -> Result<RestoreTarget, Error> {
    let give_up_at = Instant::now() + CONNECTIONS_END_WITHIN;
    let mut is_announced = false;
    loop {
        let target = read_restore_target(url).await?;
        if target.servers == 0 || Instant::now() >= give_up_at {
            return Ok(target);
        }
        if !is_announced {
            log::info!("waiting for {} connections of servers to end", target.servers);
            is_announced = true;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn load_backup(url: &str, tools: Tools, mut backup: BackupFile, replaces: bool) -> Result<(), CliError> {
    let connection = DatabaseAddress::parse(url).map_err(StartError::from)?.libpq_variables(APPLICATION);
    let (before, after) = (before_restore(replaces), after_restore(&backup.manifest.tables));
    let total = backup.manifest.archive_bytes;
    let progress = Arc::new(TransferProgress::new("restore", Unit::Bytes, total));
    let shown = Arc::clone(&progress);
    let loading = tokio::task::spawn_blocking(move || {
        let target = Target { tools: &tools, connection: &connection, before: &before, after: &after };
        load(&target, &mut backup, &|bytes| {
            shown.set(bytes);
            if bytes == total {
                shown.say("building indexes".into());
            }
        })
    });
    let loaded = loading.await;
    progress.finish();
    loaded.map_err(|panic| Error::Internal(panic.to_string()))?.map_err(failed)
}
