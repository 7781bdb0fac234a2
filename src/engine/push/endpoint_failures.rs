//! Failures of endpoints are counted, those of many attempts together.
//!
//! When an event's pushes fail, thousands of attempts have something to say of their endpoints
//! within a second. Each in a transaction of its own they would take longer than their claims hold.

use std::collections::BTreeMap;

use crate::domain::address::without_query;
use crate::error::Error;
use crate::store::DEFAULT_NAMESPACE;
use crate::store::endpoints::{Failures, note_failures};

use crate::engine::batching::deadline::{WithDeadline, answer_each, send_wanted};
use crate::engine::batching::{Answers, split};
use crate::engine::push::tell_subscribers;
use crate::engine::{Engine, transaction};

/// A failure of one attempt.
#[derive(Debug, Clone)]
pub(crate) struct EndpointFailure {
    url: String,
    is_probe: bool,
}

impl Engine {
    /// Counts a failure of an endpoint; the one that is too many opens its breaker.
    pub async fn note_failure(&self, url: &str, is_probe: bool) -> Result<(), Error> {
        self.0.batchers.endpoint_failures.call(EndpointFailure { url: url.to_owned(), is_probe }, 1).await
    }

    pub(crate) async fn note_failures_fused(&self, failures: Vec<WithDeadline<EndpointFailure>>) -> Answers<()> {
        split(failures, &|failures: Vec<WithDeadline<EndpointFailure>>| {
            let engine = self.clone();
            async move {
                let sent = send_wanted(&failures);
                engine.note_failures(sent.iter().map(|timed| &timed.call)).await?;
                Ok(answer_each(&failures, &sent, |_| Ok(())))
            }
        })
        .await
    }

    async fn note_failures(&self, failures: impl Iterator<Item = &EndpointFailure>) -> Result<(), Error> {
        let mut by_url: BTreeMap<&str, Failures> = BTreeMap::new();
        for EndpointFailure { url, is_probe } in failures {
            let failures = by_url.entry(url).or_default();
            failures.count += 1;
            failures.has_probe |= is_probe;
        }
        if by_url.is_empty() {
            return Ok(());
        }
        let rule = self.settings().breaker;
        let (opened, notices) = transaction!(self, |conn| {
            let opened = note_failures(conn, DEFAULT_NAMESPACE, &by_url, rule, self.now()).await?;
            let notices = tell_subscribers(conn, self, &opened, "breaker_opened").await?;
            Ok((opened, notices))
        })?;
        for url in &opened {
            log::warn!(endpoint = without_query(url); "the breaker opened");
        }
        if let Some(notices) = notices {
            self.follow_notices(notices);
        }
        Ok(())
    }
}
