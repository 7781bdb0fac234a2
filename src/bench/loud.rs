//! A loud neighbour: connections that keep another namespace busy while a workload is measured.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::connection::{Connection, expect};
use super::plan::{LOUD_NAMESPACE, Plan};
use super::workload::settle_body;

/// Runs connection `number` of the loud namespace until `stop`. Every second one publishes, the others work.
pub(crate) async fn run(plan: Arc<Plan>, number: usize, stop: CancellationToken) -> Result<(), String> {
    let mut connection = Connection::open(&plan.host, plan.args.key.as_deref()).await?;
    connection.use_namespace(LOUD_NAMESPACE);
    while !stop.is_cancelled() {
        match number % 2 {
            0 => publish(&plan, &mut connection).await?,
            _ => work(&plan, &mut connection, number).await?,
        }
    }
    Ok(())
}

/// Publishes a batch. The server may refuse it: that is what a loud namespace must put up with.
async fn publish(plan: &Plan, connection: &mut Connection) -> Result<(), String> {
    let published = connection.post("/events/batch", &plan.batch).await?.status;
    if published == 429 { Ok(()) } else { expect(published, 201) }
}

/// Claims a batch and completes it.
async fn work(plan: &Plan, connection: &mut Connection, number: usize) -> Result<(), String> {
    let id = format!("loud:{number}");
    let claim = format!(
        "{{\"tags\":[\"{}\"],\"worker_id\":\"{id}\",\"max\":{},\"wait_seconds\":1}}",
        plan.tags[0], plan.args.batch
    );
    let claimed = connection.post("/events/claim", claim.as_bytes()).await?;
    if claimed.status == 429 {
        return Ok(());
    }
    expect(claimed.status, 200)?;
    let (body, count) = settle_body(claimed.body, &id)?;
    if count == 0 {
        return Ok(());
    }
    let settled = connection.post("/events/settle", body.as_bytes()).await?.status;
    if settled == 429 { Ok(()) } else { expect(settled, 200) }
}
