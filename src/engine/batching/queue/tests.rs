//! The rules of the queue, one test each.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use tokio::sync::oneshot;

use super::*;
use crate::engine::batching::Caller;
use crate::engine::batching::deadline::{CallDeadline, WithDeadline};

type Queue = CallQueue<u32, ()>;

/// Counts the wake-ups of a future.
#[derive(Default)]
struct WakeUps(AtomicUsize);

impl Wake for WakeUps {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl WakeUps {
    fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }

    fn poll<F: Future>(self: &Arc<Self>, future: Pin<&mut F>) -> Poll<F::Output> {
        future.poll(&mut Context::from_waker(&Waker::from(self.clone())))
    }
}

fn call(number: u32) -> (QueuedCall<u32, ()>, oneshot::Receiver<Result<(), Error>>) {
    let (answer, answered) = oneshot::channel();
    let call = WithDeadline { call: number, time: CallDeadline::start() };
    (QueuedCall { call, weight: 1, caller: Caller { answer, mailbox: None } }, answered)
}

fn push(queue: &Queue, calls: usize) {
    (0..calls).for_each(|_| queue.push(call(0).0).unwrap());
}

/// Starts a batch of all calls that wait.
async fn start(queue: &Queue) {
    let mut turn = queue.next_turn(0).await.unwrap();
    let calls = turn.take_batch(100).len();
    turn.start_batch(calls);
}

#[tokio::test]
async fn the_first_call_of_an_idle_queue_wakes_a_task() {
    let (queue, _serving) = Queue::new(100);
    let (mut turn, woken) = (pin!(queue.next_turn(0)), Arc::<WakeUps>::default());
    assert!(woken.poll(turn.as_mut()).is_pending());
    push(&queue, 1);
    assert_eq!(woken.count(), 1);
    assert!(woken.poll(turn.as_mut()).is_ready());
}

#[tokio::test]
async fn gathering_calls_wake_a_task_once_when_they_are_as_many_as_are_in_flight() {
    let (queue, _serving) = Queue::new(100);
    push(&queue, 3);
    start(&queue).await;
    let (mut turn, woken) = (pin!(queue.next_turn(0)), Arc::<WakeUps>::default());
    assert!(woken.poll(turn.as_mut()).is_pending());
    push(&queue, 2);
    assert_eq!(woken.count(), 0, "3 calls are in flight");
    push(&queue, 1);
    assert_eq!(woken.count(), 1);
    push(&queue, 10);
    assert_eq!(woken.count(), 1, "it is awake, and takes them, too");
    let Poll::Ready(Some(mut turn)) = woken.poll(turn.as_mut()) else { panic!("it has the turn") };
    assert_eq!(turn.take_batch(100).len(), 13);
}

#[tokio::test]
async fn a_task_that_ends_a_batch_takes_the_turn_itself_and_wakes_no_other() {
    let (queue, _serving) = Queue::new(100);
    push(&queue, 3);
    start(&queue).await;
    let (mut idle, woken) = (pin!(queue.next_turn(0)), Arc::<WakeUps>::default());
    assert!(woken.poll(idle.as_mut()).is_pending());
    push(&queue, 2);
    let mut turn = queue.next_turn(3).await.unwrap();
    assert_eq!((turn.take_batch(100).len(), woken.count()), (2, 0));
}

#[tokio::test]
async fn calls_that_a_batch_leaves_behind_go_to_an_idle_task() {
    let (queue, _serving) = Queue::new(100);
    let (mut idle, woken) = (pin!(queue.next_turn(0)), Arc::<WakeUps>::default());
    push(&queue, 4);
    let mut turn = queue.next_turn(0).await.unwrap();
    assert!(woken.poll(idle.as_mut()).is_pending(), "one task at a time has the turn");
    let batch = turn.take_batch(2);
    assert_eq!((batch.len(), woken.count()), (2, 0));
    turn.start_batch(batch.len());
    assert_eq!(woken.count(), 1, "2 calls wait, and 2 are in flight");
    assert!(woken.poll(idle.as_mut()).is_ready());
}

#[tokio::test]
async fn a_turn_that_is_dropped_is_passed_on() {
    let (queue, _serving) = Queue::new(100);
    push(&queue, 1);
    let turn = queue.next_turn(0).await.unwrap();
    let (mut idle, woken) = (pin!(queue.next_turn(0)), Arc::<WakeUps>::default());
    assert!(woken.poll(idle.as_mut()).is_pending());
    drop(turn);
    assert!(woken.poll(idle.as_mut()).is_ready());
}

#[tokio::test]
async fn calls_that_have_waited_long_enough_wake_a_task_though_they_are_few() {
    let (queue, _serving) = Queue::new(100);
    push(&queue, 3);
    start(&queue).await;
    let (mut turn, woken) = (pin!(queue.next_turn(0)), Arc::<WakeUps>::default());
    let (mut watch, watch_woken) = (pin!(queue.clone().watch(Duration::ZERO)), Arc::<WakeUps>::default());
    assert!(watch_woken.poll(watch.as_mut()).is_pending());
    assert!(woken.poll(turn.as_mut()).is_pending());
    push(&queue, 1);
    assert_eq!((watch_woken.count(), woken.count()), (1, 0));
    assert!(watch_woken.poll(watch.as_mut()).is_pending());
    assert_eq!(woken.count(), 1);
    let Poll::Ready(Some(mut turn)) = woken.poll(turn.as_mut()) else { panic!("it has the turn") };
    assert_eq!(turn.take_batch(100).len(), 1);
}

#[test]
fn the_watch_does_not_cut_the_patience_short() {
    let (queue, _serving) = Queue::new(100);
    let patience = Duration::from_secs(3600);
    assert!(matches!(queue.lock().look(patience), NextLook::WhenGathering), "nothing is in flight");
    let mut state = queue.lock();
    (state.calls_in_flight, state.idle_tasks, state.is_watched) = (2, 1, true);
    drop(state);
    push(&queue, 1);
    let overdue_at = queue.lock().gathering_since + patience;
    assert!(matches!(queue.lock().look(patience), NextLook::At(time) if time == overdue_at));
    assert!(!queue.lock().is_overdue);
}

#[tokio::test]
async fn a_closed_queue_refuses_calls_and_ends_its_tasks_when_it_is_empty() {
    let (queue, _serving) = Queue::new(100);
    push(&queue, 2);
    start(&queue).await;
    let (mut idle, woken) = (pin!(queue.next_turn(0)), Arc::<WakeUps>::default());
    let (mut watch, watch_woken) = (pin!(queue.clone().watch(Duration::from_secs(3600))), Arc::<WakeUps>::default());
    assert!(watch_woken.poll(watch.as_mut()).is_pending());
    push(&queue, 1);
    queue.close();
    assert!(matches!(queue.push(call(0).0), Err(Error::Unavailable(_))));
    assert!(woken.poll(idle.as_mut()).is_pending(), "a call still gathers");
    drop(queue.next_turn(2).await.unwrap().take_batch(100));
    assert!(queue.next_turn(0).await.is_none());
    assert!(woken.count() > 0 && matches!(woken.poll(idle.as_mut()), Poll::Ready(None)));
    assert!(watch_woken.count() > 0 && watch_woken.poll(watch.as_mut()).is_ready());
}

#[tokio::test]
async fn calls_that_no_task_will_run_are_dropped_and_their_callers_told() {
    let (queue, serving) = Queue::new(100);
    let (waiting, answered) = call(1);
    queue.push(waiting).unwrap();
    drop(serving);
    assert!(answered.await.is_err());
    assert!(matches!(queue.push(call(2).0), Err(Error::Unavailable(_))));
}
