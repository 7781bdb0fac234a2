//! Work that does not go on: nobody asks for it, nobody settles it, or nobody accepts it.

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::Check;
use super::words::{duration, listed, some};
use crate::domain::address::masked;

/// A tag that nobody asks for is a problem once an event has waited for this many seconds.
const UNSERVED_TOO_LONG: f64 = 3_600.0;

/// A lease that expired this many seconds ago should have been reset long since.
pub(crate) const LEASE_OVERDUE: f64 = 30.0;

/// A worker that has been silent for this many seconds is a problem.
const SILENT_TOO_LONG: f64 = 3_600.0;

/// A breaker that has been open for this many seconds is a problem.
const OPEN_TOO_LONG: f64 = 3_600.0;

/// An operation whose next step is due for this many seconds is stuck.
pub(crate) const OPERATION_OVERDUE: f64 = 60.0;

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct UnservedFacts {
    unserved: i64,
    /// Some of them, the one whose next event has waited longest first.
    tags: Vec<UnservedTag>,
}

#[derive(Debug, Clone, Deserialize, Serialize)]
struct UnservedTag {
    namespace: String,
    tag: String,
    waiting: i64,
    seconds: f64,
}

pub(crate) fn check_unserved_tags(facts: &UnservedFacts) -> Check {
    const NAME: &str = "unserved_tags";
    let check = match facts.tags.first() {
        None => Check::ok(NAME, "a worker asks for every tag that has waiting events"),
        Some(oldest) => {
            let names: Vec<String> =
                facts.tags.iter().map(|tag| format!("{} ({} waiting)", tag.tag, tag.waiting)).collect();
            Check::graded(
                NAME,
                oldest.seconds >= UNSERVED_TOO_LONG,
                format!(
                    "no worker asks for {}: {}; waiting for {}",
                    some(facts.unserved, "tag"),
                    listed(&names),
                    duration(oldest.seconds)
                ),
                format!("Start workers for them (waybill work --tags {}), or look at waybill tags.", oldest.tag),
            )
        }
    };
    check.with(json!({"unserved": facts.unserved, "tags": facts.tags}))
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct LeaseFacts {
    expired: i64,
    events: Vec<ExpiredLease>,
    stale: i64,
    workers: Vec<SilentWorker>,
}

#[derive(Debug, Clone, Deserialize, Serialize)]
struct ExpiredLease {
    namespace: String,
    id: i64,
    worker_id: Option<String>,
    seconds: f64,
}

#[derive(Debug, Clone, Deserialize, Serialize)]
struct SilentWorker {
    namespace: String,
    worker_id: Option<String>,
    holding: i64,
    seconds: f64,
}

/// The checks that [`check_leases`] returns.
pub(crate) const LEASE_CHECKS: &[&str] = &["expired_leases", "stale_workers"];

/// Judges leases. `auto_reset` says whether this server resets those that have expired.
pub(crate) fn check_leases(facts: &LeaseFacts, auto_reset: bool) -> Vec<Check> {
    vec![expired_leases(facts, auto_reset), stale_workers(facts)]
}

fn expired_leases(facts: &LeaseFacts, auto_reset: bool) -> Check {
    const NAME: &str = "expired_leases";
    let check = match facts.events.first() {
        None => Check::ok(NAME, "no expired lease waits to be reset"),
        Some(oldest) => {
            let summary = format!(
                "{} expired, up to {} ago, and nobody has reset them",
                some(facts.expired, "lease"),
                duration(oldest.seconds)
            );
            match auto_reset {
                true => Check::problem(NAME, summary, "Look in the log for the service lease reaper."),
                false => Check::problem(
                    NAME,
                    summary,
                    "This server runs with --auto-reset false. Run waybill events reset --all, or start a server with \
                     --auto-reset true.",
                ),
            }
        }
    };
    check.with(json!({"expired": facts.expired, "auto_reset": auto_reset, "events": facts.events}))
}

fn stale_workers(facts: &LeaseFacts) -> Check {
    const NAME: &str = "stale_workers";
    let check = match facts.workers.first() {
        None => Check::ok(NAME, "no worker is silent while it holds events"),
        Some(silent) => {
            let names: Vec<String> = facts
                .workers
                .iter()
                .map(|worker| format!("{} (holds {})", worker.worker_id.as_deref().unwrap_or("?"), worker.holding))
                .collect();
            Check::graded(
                NAME,
                silent.seconds >= SILENT_TOO_LONG,
                format!(
                    "{} silent for up to {}: {}",
                    some(facts.stale, "worker"),
                    duration(silent.seconds),
                    listed(&names)
                ),
                "Look whether they still run (waybill workers). If one has died, reset its events: waybill events \
                 reset --worker NAME --stale-for-seconds N.",
            )
        }
    };
    check.with(json!({"stale": facts.stale, "workers": facts.workers}))
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct DeadLetterFacts {
    last_hour: i64,
    not_replayed: i64,
    subscriptions: Vec<SubscriptionLetters>,
}

#[derive(Debug, Clone, Deserialize, Serialize)]
struct SubscriptionLetters {
    namespace: String,
    subscription_id: i64,
    dead_letters: i64,
}

/// Judges dead letters, which are counted up to `cap`.
pub(crate) fn check_dead_letters(facts: &DeadLetterFacts, cap: i64) -> Check {
    const NAME: &str = "dead_letters";
    let check = match facts.subscriptions.first() {
        None => Check::ok(NAME, "no push was given up in the last hour"),
        Some(first) => {
            let more = if facts.last_hour >= cap { "at least " } else { "" };
            Check::warning(
                NAME,
                format!(
                    "{more}{} became dead letters in the last hour, most of subscription {}",
                    some_pushes(facts.not_replayed),
                    first.subscription_id
                ),
                "See why (waybill dead-letters list), repair the receiver, then run waybill dead-letters replay --all.",
            )
        }
    };
    check.with(json!({
        "last_hour": facts.last_hour,
        "not_replayed": facts.not_replayed,
        "subscriptions": facts.subscriptions,
    }))
}

fn some_pushes(number: i64) -> String {
    if number == 1 { "1 push".to_owned() } else { format!("{number} pushes") }
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct BreakerFacts {
    open: i64,
    endpoints: Vec<OpenEndpoint>,
}

#[derive(Debug, Clone, Deserialize, Serialize)]
struct OpenEndpoint {
    namespace: String,
    url: String,
    failures_in_row: i64,
    seconds: f64,
}

/// Judges open circuit breakers. A URL may contain a secret, so only its beginning is shown.
pub(crate) fn check_breakers(mut facts: BreakerFacts) -> Check {
    const NAME: &str = "breakers";
    for endpoint in &mut facts.endpoints {
        endpoint.url = masked(&endpoint.url);
    }
    let check = match facts.endpoints.first() {
        None => Check::ok(NAME, "no circuit breaker is open"),
        Some(oldest) => {
            let urls: Vec<&str> = facts.endpoints.iter().map(|endpoint| endpoint.url.as_str()).collect();
            Check::graded(
                NAME,
                oldest.seconds >= OPEN_TOO_LONG,
                format!(
                    "{} open for up to {}: {}",
                    some(facts.open, "breaker"),
                    duration(oldest.seconds),
                    listed(&urls)
                ),
                "Repair the receiver. The server tries it again by itself; waybill subscriptions resume ID tries at once.",
            )
        }
    };
    check.with(json!({"open": facts.open, "endpoints": facts.endpoints}))
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct OperationFacts {
    running: i64,
    stuck: Vec<StuckOperation>,
}

#[derive(Debug, Clone, Deserialize, Serialize)]
struct StuckOperation {
    namespace: String,
    id: i64,
    kind: String,
    failed_steps: i64,
    overdue_seconds: f64,
}

pub(crate) fn check_operations(facts: &OperationFacts) -> Check {
    const NAME: &str = "operations";
    let check = match facts.stuck.first() {
        None => Check::ok(NAME, "no operation is stuck"),
        Some(first) => {
            let is_overdue = first.overdue_seconds > OPERATION_OVERDUE;
            let why = match is_overdue {
                true => format!("has waited for its next step for {}", duration(first.overdue_seconds)),
                false => format!("has {} steps that failed", first.failed_steps),
            };
            Check::graded(
                NAME,
                is_overdue,
                format!("operation {} ({}) {why}", first.id, first.kind),
                format!(
                    "Look in the log for the service operation runner, or run waybill operations cancel {}.",
                    first.id
                ),
            )
        }
    };
    check.with(json!({"running": facts.running, "stuck": facts.stuck}))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::doctor::CheckStatus;

    #[test]
    fn an_unserved_tag_is_judged_by_how_long_its_events_wait() {
        let check = |seconds| {
            let tag = UnservedTag { namespace: "default".into(), tag: "mail".into(), waiting: 4, seconds };
            check_unserved_tags(&UnservedFacts { unserved: 1, tags: vec![tag] })
        };
        assert_eq!(check_unserved_tags(&UnservedFacts { unserved: 0, tags: Vec::new() }).status, CheckStatus::Ok);
        assert_eq!(check(61.0).summary, "no worker asks for 1 tag: mail (4 waiting); waiting for 1 min");
        assert_eq!([check(61.0).status, check(3_600.0).status], [CheckStatus::Warning, CheckStatus::Problem]);
        assert!(check(61.0).advice.is_some_and(|advice| advice.contains("waybill work --tags mail")));
    }

    #[test]
    fn an_expired_lease_is_a_problem_and_the_advice_depends_on_auto_reset() {
        let events =
            vec![ExpiredLease { namespace: "default".into(), id: 3, worker_id: Some("w:1".into()), seconds: 90.0 }];
        let workers = vec![SilentWorker {
            namespace: "default".into(),
            worker_id: Some("w:1".into()),
            holding: 1,
            seconds: 400.0,
        }];
        let facts = LeaseFacts { expired: 1, events, stale: 1, workers };
        let checks = check_leases(&facts, true);
        assert_eq!(checks.iter().map(|check| check.name).collect::<Vec<_>>(), LEASE_CHECKS);
        assert_eq!(checks[0].summary, "1 lease expired, up to 1 min ago, and nobody has reset them");
        assert_eq!([checks[0].status, checks[1].status], [CheckStatus::Problem, CheckStatus::Warning]);
        assert!(checks[0].advice.as_deref().is_some_and(|advice| advice.contains("lease reaper")));
        let advice = check_leases(&facts, false)[0].advice.clone();
        assert!(advice.is_some_and(|advice| advice.contains("--auto-reset false")));
        assert_eq!(checks[1].summary, "1 worker silent for up to 6 min: w:1 (holds 1)");
    }

    #[test]
    fn dead_letters_that_were_replayed_are_no_warning() {
        let subscriptions =
            vec![SubscriptionLetters { namespace: "default".into(), subscription_id: 9, dead_letters: 2 }];
        let facts = DeadLetterFacts { last_hour: 3, not_replayed: 2, subscriptions };
        let check = check_dead_letters(&facts, 1_000);
        assert_eq!(check.summary, "2 pushes became dead letters in the last hour, most of subscription 9");
        assert_eq!(check.status, CheckStatus::Warning);
        assert!(check_dead_letters(&facts, 3).summary.starts_with("at least 2"));
        let replayed = DeadLetterFacts { last_hour: 3, not_replayed: 0, subscriptions: Vec::new() };
        assert_eq!(check_dead_letters(&replayed, 1_000).status, CheckStatus::Ok);
    }

    #[test]
    fn the_url_of_an_open_breaker_is_masked() {
        let url = "https://shop.example/hooks/secret-token".to_owned();
        let endpoints = vec![OpenEndpoint { namespace: "default".into(), url, failures_in_row: 20, seconds: 40.0 }];
        let check = check_breakers(BreakerFacts { open: 1, endpoints });
        assert_eq!(check.status, CheckStatus::Warning);
        assert!(!check.summary.contains("secret-token") && !check.details.to_string().contains("secret-token"));
        assert!(check.summary.contains("shop.example"), "{}", check.summary);
    }

    #[test]
    fn an_operation_that_is_late_is_graver_than_one_whose_steps_fail() {
        let check = |overdue_seconds, failed_steps| {
            let stuck = vec![StuckOperation {
                namespace: "default".into(),
                id: 5,
                kind: "retry_events".into(),
                failed_steps,
                overdue_seconds,
            }];
            check_operations(&OperationFacts { running: 1, stuck })
        };
        assert_eq!([check(61.0, 0).status, check(0.0, 2).status], [CheckStatus::Problem, CheckStatus::Warning]);
        assert_eq!(check(0.0, 2).summary, "operation 5 (retry_events) has 2 steps that failed");
        assert_eq!(check_operations(&OperationFacts { running: 0, stuck: Vec::new() }).status, CheckStatus::Ok);
    }
}
