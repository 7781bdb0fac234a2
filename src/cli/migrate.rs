//! `waybill migrate`.

use crate::config::MigrateArgs;
use crate::logging;
use crate::startup::{StartError, open_database};
use crate::store::connection::migrate::migrate;
use crate::store::tables::histories::begin_by_hand;

/// Brings the schema up to date, in the embedded cluster if no database URL is given. With `--restored`,
/// also begins a new history.
pub(crate) async fn run(args: MigrateArgs) -> Result<(), StartError> {
    logging::init(&args.logging);
    let (url, cluster) = open_database(&args.database, 1).await?;
    let ran = migrate(&url).await?;
    match ran.len() {
        0 => println!("the schema is up to date"),
        count => println!("{count} migrations ran"),
    }
    if args.restored {
        let (previous, new) = begin_by_hand(&url).await?;
        println!(
            "the database was restored: the history {} begins, {} is over; ids go on from {}",
            new.epoch, previous.epoch, new.first_id
        );
    }
    if let Some(cluster) = cluster {
        let _ = tokio::task::spawn_blocking(move || cluster.stop()).await;
    }
    Ok(())
}
