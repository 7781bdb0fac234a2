//! A receiver that is slow, fails at random and checks the order of its requests.
//!
//! A request body is `{"key": …, "n": …}`, where `n` counts from 1 for each key. A request is held
//! until [`Checker::answer_one`] picks it; until then no other request of its key may arrive. An
//! accepted request may arrive once more, because a server may die before it has recorded the
//! success. An earlier one may not arrive, and neither may one beyond the next.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::Notify;

use crate::support::PATIENCE;
use crate::support::receiver::{Gate, Receiver, Recorded, Reply};

/// The state of the receiver.
#[derive(Clone)]
pub(super) struct Checker {
    state: Arc<Mutex<State>>,
    arrived: Arc<Notify>,
}

struct State {
    random: u64,
    waiting: Vec<Waiting>,
    taken: BTreeMap<String, u64>,
    repeats: usize,
    failures: usize,
    complaints: Vec<String>,
}

struct Waiting {
    key: String,
    n: u64,
    is_taken: bool,
    gate: Gate,
}

impl Checker {
    /// Makes a receiver check the order. The seed decides which requests fail and in which order
    /// they are answered.
    pub(super) fn of(receiver: &Receiver, seed: u64) -> Self {
        let state = State {
            random: seed,
            waiting: Vec::new(),
            taken: BTreeMap::new(),
            repeats: 0,
            failures: 0,
            complaints: Vec::new(),
        };
        let checker = Checker { state: Arc::new(Mutex::new(state)), arrived: Arc::default() };
        let rule = checker.clone();
        receiver.answer_with(move |request| rule.record(request));
        checker
    }

    fn record(&self, request: &Recorded) -> Reply {
        let (body, gate) = (request.json(), Gate::closed());
        let (key, n) = (body["key"].as_str().unwrap_or_default().to_owned(), body["n"].as_u64().unwrap_or(0));
        let mut state = self.lock();
        let last = state.taken.get(&key).copied().unwrap_or(0);
        let companion = state.waiting.iter().find(|waiting| waiting.key == key).map(|waiting| waiting.n);
        if companion.is_some() || (n != last + 1 && n != last) {
            state.complaints.push(format!("{key}: {n} arrived after {last} while {companion:?} was in flight"));
        }
        state.repeats += usize::from(n == last);
        let is_taken = !state.next_random().is_multiple_of(3);
        state.waiting.push(Waiting { key, n, is_taken, gate: gate.clone() });
        drop(state);
        self.arrived.notify_one();
        Reply::status(if is_taken { 200 } else { 503 }).held_by(&gate)
    }

    /// Answers one of the held requests, and waits until there is one.
    pub(super) async fn answer_one(&self) {
        let answering = async {
            while !self.try_answer_one() {
                self.arrived.notified().await;
            }
        };
        assert!(tokio::time::timeout(PATIENCE, answering).await.is_ok(), "no request arrived: {:?}", self.lock().taken);
    }

    fn try_answer_one(&self) -> bool {
        let mut state = self.lock();
        if state.waiting.is_empty() {
            return false;
        }
        let index = state.next_random() as usize % state.waiting.len();
        let Waiting { key, n, is_taken, gate } = state.waiting.swap_remove(index);
        if is_taken {
            state.taken.insert(key, n);
        } else {
            state.failures += 1;
        }
        gate.open();
        true
    }

    /// Answers requests until `taken` have been accepted.
    pub(super) async fn answer_until(&self, taken: u64) {
        while self.taken() < taken {
            self.answer_one().await;
        }
    }

    /// Returns how many requests have been accepted.
    pub(super) fn taken(&self) -> u64 {
        self.lock().taken.values().sum()
    }

    /// Forgets the held requests, because their sender has died.
    pub(super) fn forget_held(&self) {
        self.lock().waiting.clear();
    }

    /// Returns how many requests were repeats.
    pub(super) fn repeats(&self) -> usize {
        self.lock().repeats
    }

    /// Asserts that every request arrived in order, although there were failures.
    #[track_caller]
    pub(super) fn assert_in_order(&self) {
        let state = self.lock();
        assert!(state.complaints.is_empty(), "{}", state.complaints.join("\n"));
        assert!(state.failures > 5, "only {} failures", state.failures);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic under this lock")
    }
}

impl State {
    /// A xorshift generator, which is random enough here.
    fn next_random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random >> 16
    }
}
