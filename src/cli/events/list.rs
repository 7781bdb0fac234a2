//! `waybill events list`.

use super::{columns, row};
use crate::cli::client::{ApiClient, Query};
use crate::cli::error::CliError;
use crate::cli::output::Output;
use crate::config::ListEventsArgs;

pub(super) async fn run(args: ListEventsArgs) -> Result<(), CliError> {
    let query = args.filter.add_to(Query::new("/events").with("order", args.order.as_str()))?;
    let list = ApiClient::new(&args.server)?.list(&query, "events", &args.pages).await?;
    let output = Output::new(&args.server);
    output.list(&list, columns(), |event| row(&output, event))
}
