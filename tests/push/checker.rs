//! A receiver that is slow and fails at random, and minds the order of what it gets.
//!
//! Requests say `{"key": …, "n": …}`, n counting from 1 for each key. A request is held until
//! [`Checker::answer_one`] picks it; until then nothing else of its key may come. What was taken
//! may come once more (a server may die before it has put on record that it was taken), but
//! nothing before it, and nothing beyond the next.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::Notify;

use crate::support::PATIENCE;
use crate::support::receiver::{Gate, Receiver, Recorded, Reply};

/// What the receiver knows.
#[derive(Clone)]
pub struct Checker {
    state: Arc<Mutex<State>>,
    came: Arc<Notify>,
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
    /// Has a receiver mind the order; the seed decides what fails, and who is answered first.
    pub fn of(receiver: &Receiver, seed: u64) -> Self {
        let state = State {
            random: seed,
            waiting: Vec::new(),
            taken: BTreeMap::new(),
            repeats: 0,
            failures: 0,
            complaints: Vec::new(),
        };
        let checker = Checker { state: Arc::new(Mutex::new(state)), came: Arc::default() };
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
            state.complaints.push(format!("{key}: {n} came after {last} while {companion:?} was under way"));
        }
        state.repeats += usize::from(n == last);
        let is_taken = !state.next_random().is_multiple_of(3);
        state.waiting.push(Waiting { key, n, is_taken, gate: gate.clone() });
        drop(state);
        self.came.notify_one();
        Reply::status(if is_taken { 200 } else { 503 }).held_by(&gate)
    }

    /// Answers one of the requests that are held, once there is one.
    pub async fn answer_one(&self) {
        let answering = async {
            while !self.try_answer_one() {
                self.came.notified().await;
            }
        };
        assert!(tokio::time::timeout(PATIENCE, answering).await.is_ok(), "nothing came: {:?}", self.lock().taken);
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

    /// Answers requests until all has been taken that should be.
    pub async fn answer_until(&self, taken: u64) {
        while self.taken() < taken {
            self.answer_one().await;
        }
    }

    /// How many have been taken.
    pub fn taken(&self) -> u64 {
        self.lock().taken.values().sum()
    }

    /// The sender of all that is held has died.
    pub fn forget_held(&self) {
        self.lock().waiting.clear();
    }

    /// How many of the requests were there before.
    pub fn repeats(&self) -> usize {
        self.lock().repeats
    }

    /// Insists that everything came in its order, and that it was not for lack of trouble.
    #[track_caller]
    pub fn assert_in_order(&self) {
        let state = self.lock();
        assert!(state.complaints.is_empty(), "{}", state.complaints.join("\n"));
        assert!(state.failures > 5, "only {} failures", state.failures);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("what is known")
    }
}

impl State {
    /// Xorshift, which is random enough.
    fn next_random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random >> 16
    }
}
