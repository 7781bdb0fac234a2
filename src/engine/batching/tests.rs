use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Semaphore;

use super::*;
use crate::engine::batching::limiter::pause_after;

const SHAPE: BatcherSettings = BatcherSettings {
    name: "test",
    capacity: 100,
    width: 1,
    avoids_overlap: false,
    has_express: true,
    patience: Duration::from_secs(3600),
    max_weight: 10,
};

fn limiter<K>(connect: Box<ConnectionSource<K>>) -> Arc<BatchLimiter<K>> {
    BatchLimiter::new(1, connect)
}

fn open_limiter() -> Arc<BatchLimiter<()>> {
    limiter(Box::new(|| async { Ok(()) }.boxed()))
}

#[tokio::test]
async fn without_a_connection_callers_get_the_error_and_nothing_runs() {
    let connect: Box<ConnectionSource<()>> = Box::new(|| async { Err(Error::unavailable("away".into())) }.boxed());
    let batcher: Batcher<u32, ()> =
        Batcher::open(&Handle::current(), SHAPE, limiter(connect), |_, ()| async { panic!("must not run") });
    assert!(
        matches!(batcher.call(NamespaceId::DEFAULT, 1, 1).await, Err(Error::Unavailable(outage)) if outage.cause == "away")
    );
}

#[tokio::test]
async fn a_call_that_is_dropped_during_the_wait_for_a_connection_does_not_run() {
    let (may_connect, ran) = (Arc::new(tokio::sync::Semaphore::new(0)), Arc::new(std::sync::Mutex::new(Vec::new())));
    let (may_connect_in, ran_in) = (may_connect.clone(), ran.clone());
    let connect: Box<ConnectionSource<()>> = Box::new(move || {
        let may_connect = may_connect_in.clone();
        async move { may_connect.acquire().await.map(tokio::sync::SemaphorePermit::forget).map_err(|_| Error::Overloaded) }.boxed()
    });
    let batcher: Batcher<u32, ()> =
        Batcher::open(&Handle::current(), SHAPE, limiter(connect), move |calls: Vec<WithDeadline<u32>>, ()| {
            ran_in.lock().unwrap().extend(calls.iter().map(|timed| timed.call));
            async move { calls.iter().map(|_| Ok(())).collect() }
        });
    let mut dropped = Box::pin(batcher.call(NamespaceId::DEFAULT, 1, 1));
    assert!(futures_util::poll!(&mut dropped).is_pending());
    tokio::task::yield_now().await;
    drop(dropped);
    let kept = batcher.call(NamespaceId::DEFAULT, 2, 1);
    may_connect.add_permits(5);
    kept.await.unwrap();
    assert_eq!(*ran.lock().unwrap(), [2]);
}

#[tokio::test]
async fn a_batch_runs_on_the_connection_that_it_was_formed_for() {
    let connections = Arc::new(AtomicUsize::new(0));
    let connections_in = connections.clone();
    let connect: Box<ConnectionSource<usize>> = Box::new(move || {
        let number = connections_in.fetch_add(1, Ordering::Relaxed);
        async move { Ok(number) }.boxed()
    });
    let run = |calls: Vec<WithDeadline<()>>, number: usize| async move { calls.iter().map(|_| Ok(number)).collect() };
    let batcher: Batcher<(), usize> = Batcher::open(&Handle::current(), SHAPE, limiter(connect), run);
    assert_eq!(batcher.call(NamespaceId::DEFAULT, (), 1).await.unwrap(), 0);
    assert_eq!(batcher.call(NamespaceId::DEFAULT, (), 1).await.unwrap(), 1);
    assert_eq!(connections.load(Ordering::Relaxed), 2, "each batch takes one connection");
}

/// Returns a queued call that arrived `age` ago, and the receiver of its result.
fn waiting(age: Duration) -> (QueuedCall<(), ()>, oneshot::Receiver<Result<(), Error>>) {
    let (answer, answered) = oneshot::channel();
    let time = CallDeadline::arrived_before(age);
    let caller = Caller { answer, mailbox: None };
    (QueuedCall { namespace: NamespaceId::DEFAULT, call: WithDeadline { call: (), time }, weight: 1, caller }, answered)
}

#[tokio::test]
async fn a_call_with_too_little_time_left_for_a_batch_is_refused_and_never_sent() {
    let history = BatchHistory::default();
    assert_eq!(history.time_needed(10), Duration::ZERO);
    history.batch_ended(10, Instant::now() - Duration::from_secs(1));
    let needed = history.time_needed(10);
    assert!((1.5..1.6).contains(&needed.as_secs_f64()), "{needed:?}");
    assert!((0.15..0.16).contains(&history.time_needed(1).as_secs_f64()), "a lighter batch takes less");
    assert!((1.5..1.6).contains(&history.time_needed(100).as_secs_f64()), "a heavier one does not need more");
    let ((old, refused), (young, _)) = (waiting(Duration::from_millis(3_500)), waiting(Duration::from_secs(2)));
    let old_time = old.call.time.clone();
    let (calls, callers) = take_in_time(vec![old, young], needed);
    assert_eq!((calls.len(), callers.len()), (1, 1));
    assert!(matches!(refused.await, Ok(Err(Error::Overloaded))));
    assert!(!old_time.send());
}

#[tokio::test]
async fn a_new_call_is_sent_even_after_a_very_slow_batch() {
    let history = BatchHistory::default();
    history.batch_ended(1, Instant::now() - Duration::from_secs(20));
    let (calls, _) = take_in_time(vec![waiting(Duration::ZERO).0], history.time_needed(1));
    assert_eq!(calls.len(), 1);
}

#[test]
fn an_unsent_call_is_an_outage_only_if_no_batch_has_ended_since_it_arrived() {
    let (history, time) = (BatchHistory::default(), CallDeadline::arrived_before(Duration::from_secs(4)));
    assert!(matches!(history.not_sent(&time), Error::Unavailable(_)));
    history.batch_ended(1, Instant::now());
    assert!(matches!(history.not_sent(&time), Error::Overloaded));
    let later = CallDeadline::start();
    assert!(matches!(history.not_sent(&later), Error::Unavailable(_)), "no batch has ended since it arrived");
}

/// Calls that arrive while a batch runs form the next batches, within the maximum weight.
#[tokio::test]
async fn calls_gather_while_a_batch_runs() {
    let (may_end, sizes) = (Arc::new(tokio::sync::Semaphore::new(0)), Arc::new(std::sync::Mutex::new(Vec::new())));
    let (may_end_in, sizes_in) = (may_end.clone(), sizes.clone());
    let batcher: Batcher<u32, u32> = Batcher::open(&Handle::current(), SHAPE, open_limiter(), move |calls, ()| {
        let (may_end, sizes) = (may_end_in.clone(), sizes_in.clone());
        async move {
            sizes.lock().unwrap().push(calls.len());
            may_end.acquire().await.unwrap().forget();
            calls.into_iter().map(|timed| Ok(timed.call * 2)).collect()
        }
    });
    let mut calls: Vec<_> = (0..1).map(|n| Box::pin(batcher.call(NamespaceId::DEFAULT, n, 1))).collect();
    // The first call starts alone. The others arrive while it runs.
    assert!(futures_util::poll!(&mut calls[0]).is_pending());
    while sizes.lock().unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    calls.extend((1..16).map(|n| Box::pin(batcher.call(NamespaceId::DEFAULT, n, 1))));
    for call in &mut calls[1..] {
        assert!(futures_util::poll!(call).is_pending());
    }
    may_end.add_permits(3);
    let answers = futures_util::future::join_all(calls).await;
    let answers: Vec<u32> = answers.into_iter().map(Result::unwrap).collect();
    assert_eq!(answers, (0..16).map(|n| n * 2).collect::<Vec<_>>());
    assert_eq!(*sizes.lock().unwrap(), [1, 10, 5]);
}

/// Opens a batcher of width 2 whose batches never end, starts a lone call and queues two more behind it.
/// Returns the sizes of the batches that have started.
async fn lone_call_running_and_two_queued(patience: Duration) -> Arc<std::sync::Mutex<Vec<usize>>> {
    let sizes = Arc::new(std::sync::Mutex::new(Vec::new()));
    let sizes_in = sizes.clone();
    let shape = BatcherSettings { width: 2, patience, ..SHAPE };
    let batcher: Batcher<(), ()> = Batcher::open(&Handle::current(), shape, open_limiter(), move |calls, ()| {
        sizes_in.lock().unwrap().push(calls.len());
        std::future::pending()
    });
    let batcher = Arc::new(batcher);
    let call = || {
        let batcher = batcher.clone();
        tokio::spawn(async move { batcher.call(NamespaceId::DEFAULT, (), 1).await })
    };
    call();
    while sizes.lock().unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    call();
    call();
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    sizes
}

#[tokio::test]
async fn the_next_batch_waits_while_one_holds_the_permit() {
    let sizes = lone_call_running_and_two_queued(Duration::from_secs(3600)).await;
    assert_eq!(*sizes.lock().unwrap(), [1]);
}

#[tokio::test]
async fn a_slow_batch_does_not_delay_the_next() {
    let sizes = lone_call_running_and_two_queued(Duration::from_millis(1)).await;
    let all_started = async {
        while sizes.lock().unwrap().iter().sum::<usize>() < 3 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), all_started).await.expect("the others start, too");
}

#[tokio::test]
async fn a_quiet_call_does_not_wait_for_the_batch_of_a_dominant_namespace() {
    let (may_end, sizes) = (Arc::new(Semaphore::new(0)), Arc::new(Mutex::new(Vec::new())));
    let (may_end_in, sizes_in) = (may_end.clone(), sizes.clone());
    let shape = BatcherSettings { max_weight: 50, ..SHAPE };
    let batcher: Batcher<bool, ()> = Batcher::open(&Handle::current(), shape, open_limiter(), move |calls, ()| {
        let (may_end, is_slow) = (may_end_in.clone(), calls[0].call);
        sizes_in.lock().unwrap().push(calls.len());
        async move {
            if is_slow {
                may_end.acquire().await.unwrap().forget();
            }
            calls.iter().map(|_| Ok(())).collect()
        }
    });
    let mut loud = Box::pin(batcher.call(NamespaceId(1), true, 50));
    assert!(futures_util::poll!(&mut loud).is_pending());
    while sizes.lock().unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    // The only ordinary task and the only permit are in use.
    batcher.call(NamespaceId(2), false, 1).await.unwrap();
    assert!(futures_util::poll!(&mut loud).is_pending());
    may_end.add_permits(1);
    loud.await.unwrap();
}

#[tokio::test]
async fn half_as_many_batches_of_a_dominant_namespace_run_at_once_and_those_of_others_need_no_permit() {
    let dominant = NamespaceId(1);
    let limiter = BatchLimiter::new(4, Box::new(|| async { Ok(()) }.boxed()));
    let permit = |patience| limiter.permit(Instant::now(), patience, |namespace| namespace == dominant);
    let mut permits = Vec::new();
    for _ in 0..4 {
        permits.push(permit(Duration::ZERO).await);
    }
    assert!(permits.iter().all(BatchPermit::is_granted) && !permit(Duration::ZERO).await.is_granted());
    permits.clear();
    limiter.dominance.note(dominant);
    let (first, second) = (permit(Duration::ZERO).await, permit(Duration::ZERO).await);
    assert!(first.is_granted() && second.is_granted() && !permit(Duration::ZERO).await.is_granted());
    let mut waiting = Box::pin(permit(Duration::from_secs(3600)));
    assert!(futures_util::poll!(&mut waiting).is_pending());
    let others = limiter.permit(Instant::now(), Duration::from_secs(3600), |_| false).await;
    assert!(!others.is_granted(), "it does not wait");
    drop(first);
    assert!(waiting.await.is_granted());
    // With a limit of 1, a batch cannot take less.
    let limiter = BatchLimiter::new(1, Box::new(|| async { Ok(()) }.boxed()));
    limiter.dominance.note(dominant);
    assert!(limiter.permit(Instant::now(), Duration::from_secs(3600), |_| true).await.is_granted());
}

/// The test has one thread, so a pause begins only when the test waits.
#[tokio::test]
async fn only_a_batch_of_a_dominant_namespace_is_followed_by_a_pause() {
    let limiter = BatchLimiter::new(2, Box::new(|| async { Ok(()) }.boxed()));
    let permit = |patience| limiter.permit(Instant::now(), patience, |_| true);
    for (is_dominant, took) in [(false, Duration::from_millis(1)), (true, Duration::from_millis(1))] {
        if is_dominant {
            limiter.dominance.note(NamespaceId(1));
        }
        permit(Duration::ZERO).await.give_back(took);
        assert_eq!(permit(Duration::ZERO).await.is_granted(), !is_dominant);
        assert!(permit(Duration::from_secs(3600)).await.is_granted(), "it ends");
    }
}

#[test]
fn a_pause_is_half_as_long_as_its_batch_and_never_long() {
    for (took, pause) in [(2, 1), (10, 5), (1_000, 20)] {
        assert_eq!(pause_after(Duration::from_millis(took)), Duration::from_millis(pause));
    }
}

#[tokio::test]
async fn a_full_batcher_refuses_at_once() {
    let shape = BatcherSettings { capacity: 1, ..SHAPE };
    let batcher: Batcher<(), ()> =
        Batcher::open(&Handle::current(), shape, open_limiter(), |_, ()| std::future::pending());
    let (mut first, mut second) =
        (Box::pin(batcher.call(NamespaceId::DEFAULT, (), 1)), Box::pin(batcher.call(NamespaceId::DEFAULT, (), 1)));
    assert!(futures_util::poll!(&mut first).is_pending());
    assert!(matches!(futures_util::poll!(&mut second), std::task::Poll::Ready(Err(Error::Overloaded))));
}

#[tokio::test]
async fn after_a_panic_every_caller_gets_an_error_and_the_batcher_continues() {
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum Panic {
        BeforeSend,
        AfterSend,
        Never,
    }
    let run = |calls: Vec<WithDeadline<Panic>>, ()| async move {
        let is_due = |when: Panic| calls.iter().any(|timed| timed.call == when);
        assert!(!is_due(Panic::BeforeSend), "on purpose");
        calls.iter().for_each(|timed| assert!(timed.time.send()));
        assert!(!is_due(Panic::AfterSend), "on purpose");
        calls.iter().map(|_| Ok(())).collect()
    };
    let batcher: Batcher<Panic, ()> = Batcher::open(&Handle::current(), SHAPE, open_limiter(), run);
    assert!(matches!(batcher.call(NamespaceId::DEFAULT, Panic::BeforeSend, 1).await, Err(Error::Internal(_))));
    assert!(matches!(batcher.call(NamespaceId::DEFAULT, Panic::AfterSend, 1).await, Err(Error::OutcomeUnknown(_))));
    assert!(batcher.call(NamespaceId::DEFAULT, Panic::Never, 1).await.is_ok());
}

#[tokio::test]
async fn the_call_of_a_disconnected_caller_does_not_run() {
    let ran = Arc::new(std::sync::Mutex::new(Vec::new()));
    let ran_in = ran.clone();
    let batcher: Batcher<u32, ()> =
        Batcher::open(&Handle::current(), SHAPE, open_limiter(), move |calls: Vec<WithDeadline<u32>>, ()| {
            ran_in.lock().unwrap().extend(calls.iter().map(|timed| timed.call));
            async move { calls.iter().map(|_| Ok(())).collect() }
        });
    let mut dropped = Box::pin(batcher.call(NamespaceId::DEFAULT, 1, 1));
    assert!(futures_util::poll!(&mut dropped).is_pending());
    drop(dropped);
    batcher.call(NamespaceId::DEFAULT, 2, 1).await.unwrap();
    assert_eq!(*ran.lock().unwrap(), [2]);
}

#[tokio::test]
async fn a_refused_batch_is_split_until_the_bad_call_is_alone() {
    let run = |calls: Vec<i32>| async move {
        match calls.iter().any(|call| *call < 0) {
            true => Err(Error::Internal("refused".into())),
            false => Ok(calls.into_iter().map(Ok).collect()),
        }
    };
    let answers = split(vec![1, 2, -3, 4, 5], &run).await;
    let values: Vec<Option<i32>> = answers.into_iter().map(Result::ok).collect();
    assert_eq!(values, [Some(1), Some(2), None, Some(4), Some(5)]);
}

#[tokio::test]
async fn an_outage_is_not_split() {
    let tries = std::sync::atomic::AtomicUsize::new(0);
    let run = |_: Vec<i32>| {
        tries.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        async { Err::<Answers<i32>, _>(Error::unavailable("away".into())) }
    };
    let answers = split(vec![1, 2, 3], &run).await;
    assert!(answers.iter().all(|answer| matches!(answer, Err(Error::Unavailable(_)))));
    assert_eq!((answers.len(), tries.into_inner()), (3, 1));
}

#[tokio::test]
async fn a_call_that_keeps_conflicting_fails_alone() {
    let run = |calls: Vec<i32>| async move {
        match calls.contains(&-3) {
            true => Err(Error::outage(crate::error::OutageKind::Conflict, "a key is contended")),
            false => Ok(calls.into_iter().map(Ok).collect()),
        }
    };
    let all: Answers<i32> = split(vec![1, 2, -3], &run).await;
    assert!(all.iter().all(Result::is_err), "the others may be stored");
    let answers: Answers<i32> = split_conflicts(vec![1, 2, -3, 4, 5], &run).await;
    assert!(answers[2].as_ref().is_err_and(Error::is_conflict));
    let values: Vec<Option<i32>> = answers.into_iter().map(Result::ok).collect();
    assert_eq!(values, [Some(1), Some(2), None, Some(4), Some(5)]);
}

/// Runs callers on a thread with a mailbox of its own, as the threads that serve HTTP do.
fn on_a_thread_with_mailbox<F: Future<Output = ()>>(work: impl FnOnce() -> F + Send + 'static) {
    let thread = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(tokio::task::LocalSet::new().run_until(async {
            open_mailbox();
            work().await;
        }));
    });
    thread.join().unwrap();
}

/// An answer that counts how often it is dropped without having been received, like claims that are undone.
struct Claim {
    undone: Arc<AtomicUsize>,
    is_received: bool,
}

impl Claim {
    fn new(undone: &Arc<AtomicUsize>) -> Self {
        Claim { undone: undone.clone(), is_received: false }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.undone.fetch_add(usize::from(!self.is_received), Ordering::SeqCst);
    }
}

type ClaimReceiver = oneshot::Receiver<Result<Claim, Error>>;

/// Returns callers on this thread, and their channels.
fn callers_here(count: usize) -> (Vec<Caller<Claim>>, Vec<ClaimReceiver>) {
    let caller = |_| {
        let (answer, answered) = oneshot::channel();
        (Caller { answer, mailbox: Mailbox::of_this_thread() }, answered)
    };
    (0..count).map(caller).unzip()
}

#[test]
fn the_answers_of_a_batch_wake_a_thread_once() {
    on_a_thread_with_mailbox(|| async {
        let undone = Arc::new(AtomicUsize::new(0));
        let (callers, receivers) = callers_here(50);
        let mailbox = Mailbox::of_this_thread().unwrap();
        answer_all(callers, (0..50).map(|_| Ok(Claim::new(&undone))).collect());
        assert_eq!(mailbox.waiting_bundles(), 1, "the answers wait in one bundle");
        for answered in receivers {
            answered.await.unwrap().unwrap().is_received = true;
        }
        assert_eq!((mailbox.waiting_bundles(), undone.load(Ordering::SeqCst)), (0, 0));
    });
}

#[test]
fn a_caller_that_disappears_before_its_mailbox_is_emptied_has_its_claim_undone() {
    on_a_thread_with_mailbox(|| async {
        let undone = Arc::new(AtomicUsize::new(0));
        let (callers, mut receivers) = callers_here(3);
        answer_all(callers, (0..3).map(|_| Ok(Claim::new(&undone))).collect());
        drop(receivers.remove(1));
        assert_eq!(undone.load(Ordering::SeqCst), 0, "the mailbox has not been emptied yet");
        for answered in receivers {
            answered.await.unwrap().unwrap().is_received = true;
        }
        assert_eq!(undone.load(Ordering::SeqCst), 1);
    });
}

#[test]
fn callers_whose_thread_ends_get_an_error_and_their_claims_are_undone() {
    let undone = Arc::new(AtomicUsize::new(0));
    let (undone_in, (sender, outcome)) = (undone.clone(), std::sync::mpsc::channel());
    on_a_thread_with_mailbox(move || async move {
        let (callers, receivers) = callers_here(2);
        answer_all(callers, (0..2).map(|_| Ok(Claim::new(&undone_in))).collect());
        // The thread ends before the mailbox is emptied.
        sender.send(receivers).unwrap();
    });
    for answered in outcome.recv().unwrap() {
        assert!(answered.blocking_recv().is_err(), "an error, not silence");
    }
    assert_eq!(undone.load(Ordering::SeqCst), 2);
}

#[test]
fn answers_for_a_thread_that_has_ended_are_delivered_on_the_spot() {
    let undone = Arc::new(AtomicUsize::new(0));
    let (sender, outcome) = std::sync::mpsc::channel();
    on_a_thread_with_mailbox(move || async move { sender.send(callers_here(2)).unwrap() });
    let (callers, mut receivers) = outcome.recv().unwrap();
    drop(receivers.remove(0));
    answer_all(callers, (0..2).map(|_| Ok(Claim::new(&undone))).collect());
    assert_eq!(undone.load(Ordering::SeqCst), 1, "its caller is gone");
    receivers.remove(0).blocking_recv().unwrap().unwrap().is_received = true;
    assert_eq!(undone.load(Ordering::SeqCst), 1);
}

/// No wake-up gets lost: calls from threads with and without a mailbox, some of them given up, are all
/// answered by two tasks, although the patience is endless and no further call would help out.
#[test]
fn under_load_every_call_is_answered() {
    answer_under_load(BatcherSettings { width: 2, ..SHAPE }, |_, _| NamespaceId::DEFAULT);
}

/// The same while one namespace is dominant for some time, and then all are equal, and so on, so that the express task
/// comes and goes. No two batches with calls of one namespace run at the same time, because there is only one ordinary
/// task.
#[test]
fn beside_a_dominant_namespace_every_call_is_answered_and_no_namespace_is_in_two_batches() {
    let shape = BatcherSettings { max_weight: 50, ..SHAPE };
    let express_batches = answer_under_load(shape, |caller, number| match caller {
        // Three callers each, so that a namespace may have one call in flight while another one comes.
        0..6 => NamespaceId(10 + caller as i32 % 2),
        _ if number / 50 % 2 == 0 => NamespaceId(1),
        _ => NamespaceId(20 + caller as i32),
    });
    assert!(express_batches > 100, "{express_batches} batches ran beside another one");
}

/// Has 24 callers call, each time for the namespace of the caller and the number of the call. Returns the number of
/// batches that were started while another one ran.
fn answer_under_load(shape: BatcherSettings, namespace_of: fn(usize, u32) -> NamespaceId) -> usize {
    const CALLERS: usize = 8;
    const CALLS: u32 = 2_000;
    type Call = (NamespaceId, u32);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let running: Arc<std::sync::Mutex<Vec<NamespaceId>>> = Arc::default();
    let beside = Arc::new(AtomicUsize::new(0));
    let beside_in = beside.clone();
    let run = move |calls: Vec<WithDeadline<Call>>, ()| {
        let (running, beside) = (running.clone(), beside_in.clone());
        async move {
            let mut namespaces: Vec<NamespaceId> = calls.iter().map(|timed| timed.call.0).collect();
            namespaces.sort_unstable();
            namespaces.dedup();
            {
                let mut in_flight = running.lock().unwrap();
                beside.fetch_add(usize::from(!in_flight.is_empty()), Ordering::Relaxed);
                assert!(shape.width > 1 || !in_flight.iter().any(|namespace| namespaces.contains(namespace)));
                in_flight.extend(&namespaces);
            }
            for _ in 0..calls.len() {
                tokio::task::yield_now().await;
            }
            let mut in_flight = running.lock().unwrap();
            for namespace in namespaces {
                let position = in_flight.iter().position(|other| *other == namespace).unwrap();
                in_flight.swap_remove(position);
            }
            calls.iter().map(|timed| Ok(timed.call.1)).collect()
        }
    };
    let batcher: Arc<Batcher<Call, u32>> = Arc::new(Batcher::open(runtime.handle(), shape, open_limiter(), run));
    let caller = move |batcher: Arc<Batcher<Call, u32>>, caller: usize| async move {
        for number in 0..CALLS {
            let namespace = namespace_of(caller, number);
            if number % 7 == 0 {
                let mut given_up = Box::pin(batcher.call(namespace, (namespace, number), 1));
                let _ = futures_util::poll!(&mut given_up);
            }
            // A wait that is cut short by the deadline of the call is a lost wake-up.
            let weight = 1 + number as usize % 4;
            assert_eq!(batcher.call(namespace, (namespace, number), weight).await.unwrap(), number);
        }
    };
    let http_threads = (0..2).map(|thread| {
        let batcher = batcher.clone();
        std::thread::spawn(move || {
            on_a_thread_with_mailbox(move || async move {
                let callers = (0..CALLERS).map(|number| caller(batcher.clone(), number * 3 + thread));
                futures_util::future::join_all(callers).await;
            });
        })
    });
    let http_threads: Vec<_> = http_threads.collect();
    let others: Vec<_> = (0..CALLERS).map(|number| runtime.spawn(caller(batcher.clone(), number * 3 + 2))).collect();
    runtime.block_on(futures_util::future::join_all(others)).into_iter().for_each(Result::unwrap);
    http_threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(batcher.queued(), 0);
    beside.load(Ordering::Relaxed)
}
