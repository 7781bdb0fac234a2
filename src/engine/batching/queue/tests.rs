//! The rules of the queue, one test each.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use tokio::sync::oneshot;

use super::turn::SHARED_WEIGHT;
use super::*;
use crate::domain::ids::NamespaceId;
use crate::engine::batching::Caller;
use crate::engine::batching::deadline::{CallDeadline, WithDeadline};
use crate::engine::batching::load::EXPRESS_WEIGHT;

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
    (
        QueuedCall { namespace: NamespaceId::DEFAULT, call, weight: 1, caller: Caller { answer, mailbox: None } },
        answered,
    )
}

const SHAPE: BatcherSettings = BatcherSettings {
    name: "test",
    capacity: 100,
    width: 2,
    avoids_overlap: false,
    has_express: true,
    patience: Duration::from_secs(3600),
    max_weight: 100,
};

fn new_queue_of(shape: &BatcherSettings) -> (Arc<Queue>, Arc<ServingSide<u32, ()>>) {
    Queue::new(shape, Arc::default())
}

fn new_queue(capacity: usize, width: usize) -> (Arc<Queue>, Arc<ServingSide<u32, ()>>) {
    new_queue_of(&BatcherSettings { capacity, width, ..SHAPE })
}

fn nothing() -> StartedBatch {
    StartedBatch::default()
}

/// Waits for the turn of an ordinary task.
async fn ordinary(queue: &Queue, ended: StartedBatch) -> Option<Turn<'_, u32, ()>> {
    queue.next_turn(Service::Ordinary, ended).await
}

/// Waits for the turn of the express task.
async fn express(queue: &Queue, ended: StartedBatch) -> Option<Turn<'_, u32, ()>> {
    queue.next_turn(Service::Express, ended).await
}

fn push(queue: &Queue, calls: usize) {
    (0..calls).for_each(|_| drop(queue.push(call(0).0).unwrap()));
}

fn call_of(namespace: i32) -> QueuedCall<u32, ()> {
    QueuedCall { namespace: NamespaceId(namespace), ..call(0).0 }
}

fn push_for(queue: &Queue, namespace: i32, calls: usize) {
    (0..calls).for_each(|_| drop(queue.push(call_of(namespace)).unwrap()));
}

#[tokio::test]
async fn a_loud_namespace_has_only_a_part_of_a_batch_while_another_calls() {
    let (queue, _serving) = new_queue(1_000, 2);
    push_for(&queue, 1, 300);
    push_for(&queue, 2, 5);
    let mut turn = ordinary(&queue, nothing()).await.unwrap();
    let batch = turn.take_batch(500);
    let of = |namespace: i32| batch.iter().filter(|call| call.namespace == NamespaceId(namespace)).count();
    assert_eq!((of(1), of(2), queue.len()), (SHARED_WEIGHT, 5, 300 - SHARED_WEIGHT));
}

#[tokio::test]
async fn a_namespace_alone_has_the_whole_batch() {
    let (queue, _serving) = new_queue(1_000, 2);
    push_for(&queue, 1, 300);
    assert_eq!(ordinary(&queue, nothing()).await.unwrap().take_batch(500).len(), 300);
}

/// Starts an ordinary batch of all calls that wait.
async fn start(queue: &Queue) -> StartedBatch {
    let mut turn = ordinary(queue, nothing()).await.unwrap();
    let calls = turn.take_batch(100).len();
    turn.start_batch(calls)
}

#[tokio::test]
async fn the_first_call_of_an_idle_queue_wakes_a_task() {
    let (queue, _serving) = new_queue(100, 2);
    let (mut turn, woken) = (pin!(ordinary(&queue, nothing())), Arc::<WakeUps>::default());
    assert!(woken.poll(turn.as_mut()).is_pending());
    push(&queue, 1);
    assert_eq!(woken.count(), 1);
    assert!(woken.poll(turn.as_mut()).is_ready());
}

#[tokio::test]
async fn gathering_calls_wake_a_task_once_when_they_are_as_many_as_are_in_flight() {
    let (queue, _serving) = new_queue(100, 2);
    push(&queue, 3);
    start(&queue).await;
    let (mut turn, woken) = (pin!(ordinary(&queue, nothing())), Arc::<WakeUps>::default());
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

/// Returns a queue that avoids overlap and knows that the database is fast.
async fn fast_queue() -> (Arc<Queue>, Arc<ServingSide<u32, ()>>) {
    let (queue, serving) = new_queue_of(&BatcherSettings { avoids_overlap: true, ..SHAPE });
    let mut ended = nothing();
    for _ in 0..50 {
        push(&queue, 3);
        let mut turn = ordinary(&queue, ended).await.unwrap();
        let calls = turn.take_batch(100).len();
        ended = StartedBatch { took: Some(Duration::from_micros(200)), ..turn.start_batch(calls) };
    }
    queue.change(|state| state.end_batch(Service::Ordinary, ended));
    (queue, serving)
}

#[tokio::test]
async fn a_queue_that_avoids_overlap_runs_only_a_large_batch_beside_another_once_the_database_is_known_to_be_fast() {
    let (queue, _serving) = fast_queue().await;
    push(&queue, 3);
    let _running = start(&queue).await;
    let (mut turn, woken) = (pin!(ordinary(&queue, nothing())), Arc::<WakeUps>::default());
    assert!(woken.poll(turn.as_mut()).is_pending());
    push(&queue, 49);
    assert_eq!(woken.count(), 0, "49 calls wait, and 3 are in flight");
    push(&queue, 1);
    assert_eq!(woken.count(), 1);
}

#[tokio::test]
async fn a_small_batch_runs_beside_a_large_one_and_any_batch_that_has_waited_for_long_enough() {
    for (in_flight, patience, wakes) in
        [(60, Duration::from_secs(3600), 1), (3, Duration::ZERO, 1), (3, SHAPE.patience, 0)]
    {
        let (queue, _serving) = fast_queue().await;
        push(&queue, in_flight);
        let _running = start(&queue).await;
        let (mut watch, watch_woken) = (pin!(queue.clone().watch(patience)), Arc::<WakeUps>::default());
        assert!(watch_woken.poll(watch.as_mut()).is_pending());
        let (mut turn, woken) = (pin!(ordinary(&queue, nothing())), Arc::<WakeUps>::default());
        assert!(woken.poll(turn.as_mut()).is_pending());
        push(&queue, in_flight);
        let _ = watch_woken.poll(watch.as_mut());
        assert_eq!(woken.count(), wakes, "{in_flight} calls in flight");
    }
}

#[tokio::test]
async fn a_task_that_ends_a_batch_takes_the_turn_itself_and_wakes_no_other() {
    let (queue, _serving) = new_queue(100, 2);
    push(&queue, 3);
    let running = start(&queue).await;
    let (mut idle, woken) = (pin!(ordinary(&queue, nothing())), Arc::<WakeUps>::default());
    assert!(woken.poll(idle.as_mut()).is_pending());
    push(&queue, 2);
    let mut turn = ordinary(&queue, running).await.unwrap();
    assert_eq!((turn.take_batch(100).len(), woken.count()), (2, 0));
}

#[tokio::test]
async fn calls_that_a_batch_leaves_behind_go_to_an_idle_task() {
    let (queue, _serving) = new_queue(100, 2);
    let (mut idle, woken) = (pin!(ordinary(&queue, nothing())), Arc::<WakeUps>::default());
    push(&queue, 4);
    let mut turn = ordinary(&queue, nothing()).await.unwrap();
    assert!(woken.poll(idle.as_mut()).is_pending(), "one task at a time has the turn");
    let batch = turn.take_batch(2);
    assert_eq!((batch.len(), woken.count()), (2, 0));
    turn.start_batch(batch.len());
    assert_eq!(woken.count(), 1, "2 calls wait, and 2 are in flight");
    assert!(woken.poll(idle.as_mut()).is_ready());
}

#[tokio::test]
async fn a_turn_that_is_dropped_is_passed_on() {
    let (queue, _serving) = new_queue(100, 2);
    push(&queue, 1);
    let turn = ordinary(&queue, nothing()).await.unwrap();
    let (mut idle, woken) = (pin!(ordinary(&queue, nothing())), Arc::<WakeUps>::default());
    assert!(woken.poll(idle.as_mut()).is_pending());
    drop(turn);
    assert!(woken.poll(idle.as_mut()).is_ready());
}

#[tokio::test]
async fn calls_that_have_waited_long_enough_wake_a_task_though_they_are_few() {
    let (queue, _serving) = new_queue(100, 2);
    push(&queue, 3);
    start(&queue).await;
    let (mut turn, woken) = (pin!(ordinary(&queue, nothing())), Arc::<WakeUps>::default());
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
    let (queue, _serving) = new_queue(100, 2);
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
    let (queue, _serving) = new_queue(100, 2);
    push(&queue, 2);
    let running = start(&queue).await;
    let (mut idle, woken) = (pin!(ordinary(&queue, nothing())), Arc::<WakeUps>::default());
    let (mut watch, watch_woken) = (pin!(queue.clone().watch(Duration::from_secs(3600))), Arc::<WakeUps>::default());
    assert!(watch_woken.poll(watch.as_mut()).is_pending());
    push(&queue, 1);
    queue.close();
    assert!(matches!(queue.push(call(0).0), Err(Error::Unavailable(_))));
    assert!(woken.poll(idle.as_mut()).is_pending(), "a call still gathers");
    drop(ordinary(&queue, running).await.unwrap().take_batch(100));
    assert!(ordinary(&queue, nothing()).await.is_none());
    assert!(woken.count() > 0 && matches!(woken.poll(idle.as_mut()), Poll::Ready(None)));
    assert!(watch_woken.count() > 0 && watch_woken.poll(watch.as_mut()).is_ready());
}

#[tokio::test]
async fn calls_that_no_task_will_run_are_dropped_and_their_callers_told() {
    let (queue, serving) = new_queue(100, 2);
    let (waiting, answered) = call(1);
    queue.push(waiting).unwrap();
    drop(serving);
    assert!(answered.await.is_err());
    assert!(matches!(queue.push(call(2).0), Err(Error::Unavailable(_))));
}

const LOUD: i32 = 1;
const QUIET: i32 = 2;
const OTHER: i32 = 3;

/// Returns a queue in which a batch of a loud namespace is in flight, and more of its calls wait.
async fn busy_queue(width: usize) -> (Arc<Queue>, Arc<ServingSide<u32, ()>>, StartedBatch) {
    let (queue, serving) = new_queue(1_000, width);
    push_for(&queue, LOUD, 50);
    let running = start(&queue).await;
    push_for(&queue, LOUD, 40);
    (queue, serving, running)
}

/// Returns the namespaces of the calls of a batch, in order.
fn namespaces(batch: &[QueuedCall<u32, ()>]) -> Vec<i32> {
    batch.iter().map(|call| call.namespace.0).collect()
}

#[tokio::test]
async fn a_quiet_call_beside_a_dominant_namespace_wakes_the_express_task_once() {
    let (queue, _serving, _running) = busy_queue(2).await;
    let (mut turn, woken) = (pin!(express(&queue, nothing())), Arc::<WakeUps>::default());
    assert!(woken.poll(turn.as_mut()).is_pending());
    push_for(&queue, LOUD, 5);
    assert_eq!(woken.count(), 0, "the dominant one has no express batches");
    push_for(&queue, QUIET, 1);
    push_for(&queue, OTHER, 1);
    push_for(&queue, QUIET, 1);
    assert_eq!(woken.count(), 1);
    let Poll::Ready(Some(mut turn)) = woken.poll(turn.as_mut()) else { panic!("it has the turn") };
    let mut batch = namespaces(&turn.take_batch(EXPRESS_WEIGHT));
    batch.sort_unstable();
    assert_eq!((batch, queue.len()), (vec![QUIET, QUIET, OTHER], 45));
}

#[tokio::test]
async fn without_an_express_task_or_a_dominant_namespace_all_calls_are_ordinary() {
    let (queue, _serving, _running) = busy_queue(2).await;
    push_for(&queue, QUIET, 1);
    assert_eq!(queue.lock().calls.waiting_for(Service::Express), 0);

    let (queue, _serving) = new_queue(1_000, 2);
    let (mut turn, woken) = (pin!(express(&queue, nothing())), Arc::<WakeUps>::default());
    assert!(woken.poll(turn.as_mut()).is_pending());
    (0..200).for_each(|namespace| push_for(&queue, namespace, 3));
    assert_eq!(woken.count(), 0);
    assert_eq!(ordinary(&queue, nothing()).await.unwrap().take_batch(600).len(), 600);
}

#[tokio::test]
async fn a_namespace_is_never_in_an_ordinary_and_in_an_express_batch() {
    let (queue, _serving, running) = busy_queue(1).await;
    let (mut turn, woken) = (pin!(express(&queue, nothing())), Arc::<WakeUps>::default());
    assert!(woken.poll(turn.as_mut()).is_pending());
    push_for(&queue, QUIET, 1);
    let Poll::Ready(Some(mut turn)) = woken.poll(turn.as_mut()) else { panic!("it has the turn") };
    assert_eq!(namespaces(&turn.take_batch(EXPRESS_WEIGHT)), [QUIET]);
    let express_running = turn.start_batch(1);
    // Calls that come meanwhile wait for the express batch, even if they are too heavy for another one.
    push_for(&queue, QUIET, EXPRESS_WEIGHT + 1);
    let mut turn = ordinary(&queue, running).await.unwrap();
    assert_eq!(namespaces(&turn.take_batch(500)), [LOUD; 40]);
    let running = turn.start_batch(40);
    // When it has ended, its namespace is not quiet any more, and goes to the ordinary tasks.
    let (mut turn, woken) = (pin!(express(&queue, express_running)), Arc::<WakeUps>::default());
    assert!(woken.poll(turn.as_mut()).is_pending());
    let mut turn = ordinary(&queue, running).await.unwrap();
    assert_eq!(namespaces(&turn.take_batch(500)), [QUIET; EXPRESS_WEIGHT + 1]);
    let _running = turn.start_batch(EXPRESS_WEIGHT + 1);
    // While it is in flight there, a further call is ordinary, too.
    push_for(&queue, LOUD, 100);
    push_for(&queue, QUIET, 1);
    assert_eq!((woken.count(), queue.lock().calls.waiting_for(Service::Express)), (0, 0));
}

#[tokio::test]
async fn a_namespace_that_is_dominant_in_another_batcher_is_dominant_here_if_it_calls() {
    let dominance: Arc<Dominance> = Arc::default();
    let (queue, _serving) = Queue::new(&SHAPE, dominance.clone());
    let (mut turn, woken) = (pin!(express(&queue, nothing())), Arc::<WakeUps>::default());
    assert!(woken.poll(turn.as_mut()).is_pending());
    push_for(&queue, LOUD, 3);
    push_for(&queue, QUIET, 1);
    assert_eq!(woken.count(), 0);
    dominance.note(NamespaceId(LOUD));
    push_for(&queue, OTHER, 1);
    assert_eq!(woken.count(), 1);
    push_for(&queue, LOUD, 1);
    let Poll::Ready(Some(mut turn)) = woken.poll(turn.as_mut()) else { panic!("it has the turn") };
    assert_eq!(namespaces(&turn.take_batch(EXPRESS_WEIGHT)), [OTHER]);
    drop(turn);
    // Without calls of the dominant one, there is nothing to pass.
    let (queue, _serving) = Queue::new(&SHAPE, dominance);
    let (mut turn, woken) = (pin!(express(&queue, nothing())), Arc::<WakeUps>::default());
    assert!(woken.poll(turn.as_mut()).is_pending());
    push_for(&queue, QUIET, 3);
    push_for(&queue, OTHER, 3);
    assert_eq!(woken.count(), 0);
}

#[tokio::test]
async fn a_quiet_namespace_goes_express_when_its_ordinary_batch_ends() {
    let (queue, _serving) = new_queue(1_000, 2);
    let (mut idle, woken) = (pin!(express(&queue, nothing())), Arc::<WakeUps>::default());
    assert!(woken.poll(idle.as_mut()).is_pending());
    push_for(&queue, QUIET, 1);
    push_for(&queue, LOUD, 50);
    let running = start(&queue).await;
    push_for(&queue, LOUD, 50);
    push_for(&queue, QUIET, 1);
    assert_eq!(woken.count(), 0, "the quiet one is in flight");
    let mut turn = ordinary(&queue, running).await.unwrap();
    assert_eq!(woken.count(), 1);
    assert_eq!(namespaces(&turn.take_batch(500)), [LOUD; 50]);
}

#[tokio::test]
async fn calls_beyond_the_room_of_the_express_task_are_ordinary() {
    let (queue, _serving, _running) = busy_queue(2).await;
    let (mut turn, woken) = (pin!(express(&queue, nothing())), Arc::<WakeUps>::default());
    assert!(woken.poll(turn.as_mut()).is_pending());
    (0..50).for_each(|number| push_for(&queue, 10 + number, 1));
    let waiting = |service| queue.lock().calls.waiting_for(service);
    assert_eq!((waiting(Service::Express), waiting(Service::Ordinary)), (EXPRESS_WEIGHT, 40 + 50 - EXPRESS_WEIGHT));
}

#[tokio::test]
async fn calls_overtake_an_express_batch_that_takes_long_unless_there_is_one_ordinary_task() {
    for (width, overtakes) in [(2, true), (1, false)] {
        let (queue, _serving, running) = busy_queue(width).await;
        let (mut turn, woken) = (pin!(express(&queue, nothing())), Arc::<WakeUps>::default());
        let (mut watch, watch_woken) = (pin!(queue.clone().watch(Duration::ZERO)), Arc::<WakeUps>::default());
        assert!(watch_woken.poll(watch.as_mut()).is_pending());
        assert!(woken.poll(turn.as_mut()).is_pending());
        push_for(&queue, QUIET, 1);
        let Poll::Ready(Some(mut turn)) = woken.poll(turn.as_mut()) else { panic!("it has the turn") };
        turn.take_batch(EXPRESS_WEIGHT);
        let _stuck = turn.start_batch(1);
        push_for(&queue, QUIET, 1);
        assert_eq!(watch_woken.count(), usize::from(overtakes));
        let _ = watch_woken.poll(watch.as_mut());
        let batch = ordinary(&queue, running).await.unwrap().take_batch(500);
        assert_eq!(namespaces(&batch).contains(&QUIET), overtakes, "{width}");
    }
}

#[tokio::test]
async fn when_the_queue_is_full_a_quiet_call_takes_the_place_of_a_loud_one() {
    let (queue, _serving) = new_queue(60, 2);
    let (mut turn, woken) = (pin!(express(&queue, nothing())), Arc::<WakeUps>::default());
    assert!(woken.poll(turn.as_mut()).is_pending());
    push_for(&queue, LOUD, 60);
    assert!(queue.push(call_of(LOUD)).is_err());
    assert_eq!(queue.push(call_of(QUIET)).unwrap().map(|dropped| dropped.namespace.0), Some(LOUD));
    let Poll::Ready(Some(mut turn)) = woken.poll(turn.as_mut()) else { panic!("it has the turn") };
    assert_eq!(turn.take_batch(EXPRESS_WEIGHT).len(), 1);
}

#[tokio::test]
async fn a_closed_queue_ends_the_express_task_and_loses_no_call_of_it() {
    let (queue, _serving, running) = busy_queue(2).await;
    let (mut turn, woken) = (pin!(express(&queue, nothing())), Arc::<WakeUps>::default());
    assert!(woken.poll(turn.as_mut()).is_pending());
    push_for(&queue, QUIET, 1);
    queue.close();
    let Poll::Ready(Some(mut turn)) = woken.poll(turn.as_mut()) else { panic!("a call still waits") };
    let batch = turn.take_batch(EXPRESS_WEIGHT).len();
    let express_running = turn.start_batch(batch);
    assert!(express(&queue, express_running).await.is_none());
    let mut turn = ordinary(&queue, running).await.unwrap();
    assert_eq!(namespaces(&turn.take_batch(500)), [LOUD; 40]);
    drop(turn);
    assert!(ordinary(&queue, nothing()).await.is_none());
    assert!(!queue.is_busy() || queue.lock().calls_in_flight == 0);
}
