//! The fast path: completions by the worker that holds the delivery are one guarded statement.

use std::collections::HashMap;

use crate::domain::ids::DeliveryKey;
use crate::domain::status::Status;
use crate::error::Error;
use crate::store::tables::completions::{Completion, complete_deliveries};

use crate::engine::settle::{RecordedSettlement, SettleCall, SettleOutcome, Settlement, SettlementEntry};
use crate::engine::{Engine, statement};

impl Engine {
    /// Completes the deliveries that their callers hold. A call that gets no result here (`None`) must
    /// be judged.
    pub(super) async fn complete_held(
        &self,
        calls: &[&SettleCall],
    ) -> Result<Vec<Option<Result<SettleOutcome, Error>>>, Error> {
        let mut results: Vec<Option<Result<SettleOutcome, Error>>> = calls.iter().map(|_| None).collect();
        let mut calls_per_delivery: HashMap<DeliveryKey, u32> = HashMap::new();
        for call in calls {
            *calls_per_delivery.entry(call.delivery).or_default() += 1;
        }
        // Several calls about one delivery must take effect in their order, so they are all judged.
        let is_alone = |call: &&SettleCall| calls_per_delivery[&call.delivery] == 1;
        let (indices, completions): (Vec<usize>, Vec<Completion<'_>>) = calls
            .iter()
            .enumerate()
            .filter(|(_, call)| is_alone(call))
            .filter_map(|(index, call)| Some((index, completion(call)?)))
            .unzip();
        if completions.is_empty() {
            return Ok(results);
        }
        let completing =
            async { statement!(self, |conn| { Ok(complete_deliveries(conn, self.now(), &completions).await?) }) };
        let completed = match completing.await {
            // Only the outcome of these calls is unknown: the others have not been sent.
            Err(error @ (Error::Unavailable(_) | Error::OutcomeUnknown(_))) => {
                indices.iter().for_each(|index| results[*index] = Some(Err(error.for_another())));
                return Ok(results);
            }
            completed => completed?,
        };
        if !completed.is_empty() {
            self.database().note_success();
            self.stats().count_completed(completed.iter().map(|row| {
                let namespace = calls[indices[row.ord as usize - 1]].delivery.namespace;
                (namespace.event(row.entry.event_id), row.entry.delivery_id.is_some(), row.entry.created_at)
            }));
        }
        for row in completed {
            let record = RecordedSettlement {
                entry: SettlementEntry::Logged(row.entry),
                is_repeat: false,
                status: Status::Completed,
                retry_count: row.retry_count,
                max_retries: row.max_retries,
            };
            results[indices[row.ord as usize - 1]] = Some(Ok(SettleOutcome::Recorded(Box::new(record))));
        }
        Ok(results)
    }
}

fn completion(call: &SettleCall) -> Option<Completion<'_>> {
    let Settlement::Complete(report) = &call.settlement else { return None };
    Some(Completion {
        delivery: call.delivery,
        lease_id: call.caller.lease_id,
        worker_id: &call.caller.worker_id,
        tag_patterns: call.tag_patterns.as_deref(),
        report,
    })
}
