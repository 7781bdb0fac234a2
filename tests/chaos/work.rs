//! Workers, publishers and operators that make all kinds of calls, and sometimes die.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use chrono::{TimeDelta, Utc};
use serde_json::{Value, json};

use super::servers::Servers;
use crate::support::Rng;
use crate::support::work::{Claim, Naming};

/// Tags that all workers serve.
pub(super) const BUSY_TAGS: [&str; 2] = ["a", "b"];

/// Tags that are served afterwards only by workers that have waited through all faults, one for
/// each tag and server. There are many, so that the next notification does not make up for a lost
/// one.
pub(super) const QUIET_TAGS: [&str; 8] = ["q0", "q1", "q2", "q3", "q4", "q5", "q6", "q7"];
const KEYS: u64 = 5;

/// What servers have acknowledged, and must keep.
#[derive(Default)]
pub(super) struct Promises {
    pub published: Mutex<BTreeSet<i64>>,
    pub completed: Mutex<BTreeSet<i64>>,
}

struct Worker<'a> {
    servers: &'a Servers,
    promises: &'a Promises,
    worker_id: String,
    rng: Rng,
    held: Vec<Claim>,
}

pub(super) async fn work_erratically(servers: &Servers, promises: &Promises, number: u64, rng: Rng, stop: &AtomicBool) {
    let mut worker = Worker { servers, promises, worker_id: format!("worker:{number}"), rng, held: Vec::new() };
    while !stop.load(Ordering::Relaxed) {
        match worker.rng.below(20) {
            0..=4 => worker.publish().await,
            5..=9 => worker.claim().await,
            10..=11 => worker.complete().await,
            12 => worker.complete_and_claim().await,
            13 => worker.settle("fail", json!({"retry_after_seconds": 0.25})).await,
            14 => worker.settle("release", json!({"delay_seconds": 0.1})).await,
            15 => worker.settle("heartbeat", json!({"lease_seconds": 1})).await,
            16 => worker.settle("start", json!({})).await,
            17 => worker.held.clear(),
            18 => worker.operate().await,
            _ => worker.hang_up().await,
        }
    }
}

impl Worker<'_> {
    fn any_server(&mut self) -> usize {
        self.rng.below(self.servers.len() as u64) as usize
    }

    fn any_tag(&mut self) -> &'static str {
        let tags: &[&str] = if self.rng.one_in(2) { &QUIET_TAGS } else { &BUSY_TAGS };
        self.rng.pick(tags).expect("a tag")
    }

    fn event(&mut self) -> Value {
        let tag = self.any_tag();
        let mut event = json!({"title": "a job", "tags": tag, "priority": self.rng.below(3), "max_retries": 3});
        if self.rng.one_in(2) {
            event["ordering_key"] = json!(format!("k{}", self.rng.below(KEYS)));
        }
        if self.rng.one_in(5) {
            event["delay_seconds"] = json!(0.1 * self.rng.below(6) as f64);
        }
        if self.rng.one_in(10) {
            let millis = 300 + self.rng.below(700) as i64;
            event["expires_at"] = json!(Utc::now() + TimeDelta::milliseconds(millis));
        }
        event
    }

    async fn publish(&mut self) {
        let events: Vec<Value> = (0..=self.rng.below(4)).map(|_| self.event()).collect();
        let server = self.any_server();
        let answer = self.servers.post(server, "/events/batch", &json!({"events": events})).await;
        if let Some(answer) = answer.filter(|answer| answer.status == 201) {
            let ids = answer.body["events"].as_array().expect("events").iter();
            let ids = ids.map(|event| event["id"].as_i64().expect("an id"));
            self.promises.published.lock().expect("no panic").extend(ids);
        }
    }

    fn any_request(&mut self) -> Value {
        let tags = [self.any_tag(), self.any_tag()];
        let (wait, max) = (0.5 * self.rng.below(3) as f64, 1 + self.rng.below(4));
        json!({"tags": tags, "lease_seconds": 1, "wait_seconds": wait, "max": max})
    }

    fn hold(&mut self, answer: &Value) {
        self.held.extend(answer["events"].as_array().expect("events").iter().map(Claim::of));
    }

    async fn claim(&mut self) {
        let (server, mut request) = (self.any_server(), self.any_request());
        request["worker_id"] = json!(self.worker_id);
        let answer = self.servers.post(server, "/events/claim", &request).await;
        if let Some(answer) = answer.filter(|answer| answer.status == 200) {
            self.hold(&answer.body);
        }
    }

    /// Completes one event and claims others in the same call.
    async fn complete_and_claim(&mut self) {
        let Some(claim) = self.any_claim() else { return };
        let (server, request) = (self.any_server(), self.any_request());
        let settlements = [claim.settlement("complete", json!({}))];
        let body = json!({"worker_id": self.worker_id, "settlements": settlements, "claim": request});
        let answer = self.servers.post(server, "/events/settle", &body).await;
        if let Some(answer) = answer.filter(|answer| answer.status == 200) {
            self.hold(&answer.body);
            if answer.body["results"][0]["accepted"] == true {
                self.promises.completed.lock().expect("no panic").insert(claim.event_id);
            }
        }
    }

    /// Polls for work and disconnects before or while the response arrives.
    async fn hang_up(&mut self) {
        let (server, mut request) = (self.any_server(), self.any_request());
        request["worker_id"] = json!(self.worker_id);
        let patience = Duration::from_millis(self.rng.below(40));
        let _ = tokio::time::timeout(patience, self.servers.post(server, "/events/claim", &request)).await;
    }

    fn any_claim(&mut self) -> Option<Claim> {
        let index = self.rng.below(self.held.len().max(1) as u64) as usize;
        (index < self.held.len()).then(|| self.held.swap_remove(index))
    }

    async fn complete(&mut self) {
        let Some(claim) = self.any_claim() else { return };
        let (server, path) = (self.any_server(), format!("/events/{}/complete", claim.event_id));
        let answer = self.servers.post(server, &path, &claim.body(Naming::Lease)).await;
        if answer.is_some_and(|answer| answer.status == 200) {
            self.promises.completed.lock().expect("no panic").insert(claim.event_id);
        }
    }

    async fn settle(&mut self, verb: &str, more: Value) {
        let Some(claim) = self.any_claim() else { return };
        let mut body = claim.body(Naming::Lease);
        body.as_object_mut().expect("an object").extend(more.as_object().cloned().expect("an object"));
        let (server, path) = (self.any_server(), format!("/events/{}/{verb}", claim.event_id));
        self.servers.post(server, &path, &body).await;
        if matches!(verb, "heartbeat" | "start") {
            self.held.push(claim);
        }
    }

    async fn operate(&mut self) {
        let ids: Vec<i64> = self.promises.published.lock().expect("no panic").iter().rev().take(50).copied().collect();
        let Some(id) = self.rng.pick(&ids).copied() else { return };
        let (path, body) = match self.rng.below(5) {
            0 => (format!("/events/{id}/reset"), json!({})),
            1 => (format!("/events/{id}/cancel"), json!({})),
            2 => (format!("/events/{id}/retry"), json!({})),
            3 => ("/events/retry".to_owned(), json!({"filter": {}})),
            _ => ("/events/reset".to_owned(), json!({"filter": {"stale_for_seconds": 1}})),
        };
        let server = self.any_server();
        self.servers.post(server, &path, &body).await;
    }
}
