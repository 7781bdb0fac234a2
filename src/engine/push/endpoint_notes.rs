//! Endpoint notes: the results of attempts, written to the rows of their endpoints in batches.
//!
//! An attempt leaves a note if its endpoint failed, recovered, or requested a pause. When the pushes
//! of an event fail, thousands of notes arrive within a second. One transaction per note would take
//! longer than the leases of the pushes last. Therefore all notes pass through one batcher, which runs
//! one batch at a time and writes notes in the order of their arrival. If a success overtook earlier
//! failures, the breaker would open on an endpoint that has responded since.

use std::collections::BTreeMap;

use crate::domain::address::masked;
use crate::domain::ids::NamespaceId;
use crate::error::Error;
use crate::logging::limiter::Kind;
use crate::store::tables::endpoints::{
    ChangedEndpoint, EndpointKey, Failures, pause_endpoints, record_endpoint_failures, record_endpoint_successes,
    return_probes,
};

use crate::engine::batching::deadline::{WithDeadline, answer_each, send_wanted};
use crate::engine::batching::{Answers, split};
use crate::engine::push::publish_notices_about;
use crate::engine::{Engine, statement, transaction};

/// The result of one attempt, as far as it concerns the endpoint.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct EndpointNote {
    pub finding: Option<Finding>,
    /// The length of the pause that the endpoint requested.
    pub pause_seconds: Option<f64>,
}

/// Whether an endpoint works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finding {
    /// The endpoint failed. Its breaker opens if it has failed too often in a row, or if the attempt
    /// was a probe.
    Failed { is_probe: bool },
    /// The endpoint responded. Its failure count is reset, and its breaker closes.
    Answered,
    /// The attempt had the right to probe the endpoint, but sent no request.
    ProbeUnused,
}

#[derive(Debug, Clone)]
pub(crate) struct QueuedNote {
    namespace: NamespaceId,
    url: String,
    note: EndpointNote,
}

/// The notes of a batch about one endpoint.
#[derive(Debug, Default, PartialEq)]
struct Summary {
    has_answered: bool,
    /// The failures since the endpoint last responded.
    failures: Failures,
    has_unused_probe: bool,
    pause_seconds: Option<f64>,
}

impl Summary {
    /// Adds a note that is later than all notes before.
    fn add(&mut self, note: EndpointNote) {
        match note.finding {
            Some(Finding::Failed { is_probe }) => {
                self.failures.count += 1;
                self.failures.has_probe |= is_probe;
            }
            Some(Finding::Answered) => {
                self.has_answered = true;
                self.failures = Failures::default();
            }
            Some(Finding::ProbeUnused) => self.has_unused_probe = true,
            None => {}
        }
        self.pause_seconds = self.pause_seconds.into_iter().chain(note.pause_seconds).reduce(f64::max);
    }
}

/// The notes of a batch, by endpoint. The map is ordered because rows are locked in the order of their keys.
type Summaries<'a> = BTreeMap<EndpointKey<'a>, Summary>;

impl Engine {
    /// Writes the note of an attempt about its endpoint, after all notes that were queued earlier.
    pub async fn note_endpoint(&self, endpoint: EndpointKey<'_>, note: EndpointNote) -> Result<(), Error> {
        if note == EndpointNote::default() {
            return Ok(());
        }
        let EndpointKey { namespace, url } = endpoint;
        let queued = QueuedNote { namespace, url: url.to_owned(), note };
        self.0.batchers.endpoint_notes.call(namespace, queued, 1).await
    }

    pub(crate) async fn run_note_batch(&self, notes: Vec<WithDeadline<QueuedNote>>) -> Answers<()> {
        split(notes, &|notes: Vec<WithDeadline<QueuedNote>>| {
            let engine = self.clone();
            async move {
                let sent = send_wanted(&notes);
                engine.write_notes(sent.iter().map(|timed| &timed.call)).await?;
                Ok(answer_each(&notes, &sent, |_| Ok(())))
            }
        })
        .await
    }

    /// Writes each kind of note in a separate transaction, which locks rows in the order of their keys.
    /// In one common transaction two servers could deadlock. Pauses come last: they only extend a pause,
    /// and the other kinds may shorten it.
    async fn write_notes(&self, notes: impl Iterator<Item = &QueuedNote>) -> Result<(), Error> {
        let mut summaries = Summaries::new();
        for QueuedNote { namespace, url, note } in notes {
            summaries.entry(EndpointKey { namespace: *namespace, url }).or_default().add(*note);
        }
        self.write_successes(&summaries).await?;
        self.write_failures(&summaries).await?;
        let unused: Vec<EndpointKey<'_>> = endpoints_where(&summaries, |summary| summary.has_unused_probe);
        if !unused.is_empty() {
            self.return_probes(&unused).await?;
        }
        self.write_pauses(&summaries).await
    }

    async fn write_successes(&self, summaries: &Summaries<'_>) -> Result<(), Error> {
        let answered = endpoints_where(summaries, |summary| summary.has_answered);
        if answered.is_empty() {
            return Ok(());
        }
        let (closed, notices) = transaction!(self, |conn| {
            let closed = record_endpoint_successes(conn, self.now(), &answered).await?;
            let notices = publish_notices_about(conn, self, &closed, "breaker_closed").await?;
            Ok((closed, notices))
        })?;
        for ChangedEndpoint { namespace_id, url } in closed.iter().filter(|_| Kind::Breaker.is_due()) {
            log::warn!(namespace_id, endpoint = masked(url).as_str(); "the breaker closed");
        }
        if !notices.is_empty() {
            notices.into_iter().for_each(|notices| self.notify_after_notices(notices));
            self.dispatch_signal().signal(None);
        }
        Ok(())
    }

    async fn write_failures(&self, summaries: &Summaries<'_>) -> Result<(), Error> {
        let failed = summaries.iter().filter(|(_, summary)| summary.failures.count > 0);
        let failures: BTreeMap<EndpointKey<'_>, Failures> =
            failed.map(|(key, summary)| (*key, summary.failures)).collect();
        if failures.is_empty() {
            return Ok(());
        }
        let rule = self.settings().breaker;
        let (opened, notices) = transaction!(self, |conn| {
            let opened = record_endpoint_failures(conn, self.now(), &failures, rule).await?;
            let notices = publish_notices_about(conn, self, &opened, "breaker_opened").await?;
            Ok((opened, notices))
        })?;
        for ChangedEndpoint { namespace_id, url } in opened.iter().filter(|_| Kind::Breaker.is_due()) {
            log::warn!(namespace_id, endpoint = masked(url).as_str(); "the breaker opened");
        }
        notices.into_iter().for_each(|notices| self.notify_after_notices(notices));
        Ok(())
    }

    async fn write_pauses(&self, summaries: &Summaries<'_>) -> Result<(), Error> {
        let paused = summaries.iter().filter_map(|(key, summary)| Some((*key, summary.pause_seconds?)));
        let pauses: BTreeMap<EndpointKey<'_>, f64> = paused.collect();
        if pauses.is_empty() {
            return Ok(());
        }
        statement!(self, |conn| { Ok(pause_endpoints(conn, self.now(), &pauses).await?) })
    }

    /// Returns the right to probe endpoints. Bypasses the queue of notes, because the dispatcher claims
    /// nothing for any subscription until this call returns.
    pub async fn return_probes(&self, endpoints: &[EndpointKey<'_>]) -> Result<(), Error> {
        let mut conn = self.database().connection().await?;
        Ok(return_probes(&mut conn, self.now(), endpoints).await?)
    }
}

fn endpoints_where<'a>(summaries: &Summaries<'a>, is_wanted: impl Fn(&Summary) -> bool) -> Vec<EndpointKey<'a>> {
    summaries.iter().filter(|(_, summary)| is_wanted(summary)).map(|(key, _)| *key).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_counts_failures_since_the_last_success_and_keeps_the_longest_pause() {
        let failed =
            |is_probe, pause_seconds| EndpointNote { finding: Some(Finding::Failed { is_probe }), pause_seconds };
        let mut summary = Summary::default();
        summary.add(failed(true, Some(30.0)));
        assert_eq!(summary.failures, Failures { count: 1, has_probe: true });
        summary.add(EndpointNote { finding: Some(Finding::Answered), pause_seconds: None });
        assert_eq!((summary.has_answered, summary.failures), (true, Failures::default()));
        summary.add(failed(false, Some(10.0)));
        summary.add(failed(false, None));
        assert_eq!(summary.failures, Failures { count: 2, has_probe: false });
        assert_eq!((summary.has_answered, summary.pause_seconds), (true, Some(30.0)));
    }
}
