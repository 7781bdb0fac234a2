//! `waybill bench`.

use crate::bench;
use crate::config::BenchArgs;
use crate::error::Error;
use crate::startup::StartError;

/// Runs one workload against a server and prints the report.
pub(crate) async fn run(args: BenchArgs) -> Result<(), StartError> {
    let report = bench::run(&args).await.map_err(Error::Internal)?;
    if args.json {
        let text = serde_json::to_string(&report).map_err(|error| Error::Internal(error.to_string()))?;
        println!("{text}");
    } else {
        println!("{report}");
    }
    Ok(())
}
