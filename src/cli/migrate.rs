//! `waybill migrate`.

use crate::config::MigrateArgs;
use crate::logging;
use crate::startup::{StartError, open_database};
use crate::store::migrate::migrate;

/// Brings the schema up to date, in our own cluster where no database is given.
pub async fn run(args: MigrateArgs) -> Result<(), StartError> {
    logging::init(&args.logging);
    let (url, cluster) = open_database(&args.database, 1).await?;
    let ran = migrate(&url).await?;
    match ran.len() {
        0 => println!("the schema is up to date"),
        count => println!("{count} migrations ran"),
    }
    if let Some(cluster) = cluster {
        let _ = tokio::task::spawn_blocking(move || cluster.stop()).await;
    }
    Ok(())
}
