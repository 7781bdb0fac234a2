use super::*;

const SHAPE: BatcherSettings =
    BatcherSettings { name: "test", capacity: 100, width: 1, patience: Duration::from_secs(3600), max_weight: 10 };

fn limiter<K>(connect: Box<ConnectionSource<K>>) -> Arc<BatchLimiter<K>> {
    Arc::new(BatchLimiter { permits: Arc::new(Semaphore::new(1)), connect })
}

fn open_limiter() -> Arc<BatchLimiter<()>> {
    limiter(Box::new(|| async { Ok(()) }.boxed()))
}

#[tokio::test]
async fn behind_a_closed_gate_everybody_is_told_and_nothing_is_run() {
    let connect: Box<ConnectionSource<()>> = Box::new(|| async { Err(Error::unavailable("away".into())) }.boxed());
    let batcher: Batcher<u32, ()> =
        Batcher::open(&Handle::current(), SHAPE, limiter(connect), |_, ()| async { panic!("must not run") });
    assert!(matches!(batcher.call(1, 1).await, Err(Error::Unavailable(outage)) if outage.cause == "away"));
}

#[tokio::test]
async fn who_leaves_while_the_gate_is_closed_is_not_run_when_it_opens() {
    let (opened, ran) = (Arc::new(tokio::sync::Semaphore::new(0)), Arc::new(std::sync::Mutex::new(Vec::new())));
    let (opened_in, ran_in) = (opened.clone(), ran.clone());
    let connect: Box<ConnectionSource<()>> = Box::new(move || {
        let opened = opened_in.clone();
        async move { opened.acquire().await.map(|permit| permit.forget()).map_err(|_| Error::Overloaded) }.boxed()
    });
    let batcher: Batcher<u32, ()> =
        Batcher::open(&Handle::current(), SHAPE, limiter(connect), move |calls: Vec<WithDeadline<u32>>, ()| {
            ran_in.lock().unwrap().extend(calls.iter().map(|timed| timed.call));
            async move { calls.iter().map(|_| Ok(())).collect() }
        });
    let mut gone = Box::pin(batcher.call(1, 1));
    assert!(futures_util::poll!(&mut gone).is_pending());
    tokio::task::yield_now().await;
    drop(gone);
    let stays = batcher.call(2, 1);
    opened.add_permits(5);
    stays.await.unwrap();
    assert_eq!(*ran.lock().unwrap(), [2]);
}

#[tokio::test]
async fn a_batch_runs_on_the_connection_that_it_was_put_together_for() {
    let connections = Arc::new(AtomicUsize::new(0));
    let given = connections.clone();
    let connect: Box<ConnectionSource<usize>> = Box::new(move || {
        let number = given.fetch_add(1, Ordering::Relaxed);
        async move { Ok(number) }.boxed()
    });
    let run = |calls: Vec<WithDeadline<()>>, number: usize| async move { calls.iter().map(|_| Ok(number)).collect() };
    let batcher: Batcher<(), usize> = Batcher::open(&Handle::current(), SHAPE, limiter(connect), run);
    assert_eq!(batcher.call((), 1).await.unwrap(), 0);
    assert_eq!(batcher.call((), 1).await.unwrap(), 1);
    assert_eq!(connections.load(Ordering::Relaxed), 2, "and on no other");
}

/// A call as it waits, which arrived so long ago, and where its answer comes.
fn waiting(ago: Duration) -> (QueuedCall<(), ()>, oneshot::Receiver<Result<(), Error>>) {
    let (answer, answered) = oneshot::channel();
    let time = CallDeadline::arrived_before(ago);
    (QueuedCall { call: WithDeadline { call: (), time }, weight: 1, answer }, answered)
}

#[tokio::test]
async fn a_call_with_too_little_time_left_for_a_batch_is_refused_and_never_sent() {
    let traffic = BatchTraffic::default();
    assert_eq!(traffic.time_needed(10), Duration::ZERO);
    traffic.come_back(0, 10, Instant::now() - Duration::from_secs(1));
    let needed = traffic.time_needed(10);
    assert!((1.5..1.6).contains(&needed.as_secs_f64()), "{needed:?}");
    assert!((0.15..0.16).contains(&traffic.time_needed(1).as_secs_f64()), "a lighter batch takes less");
    assert!((1.5..1.6).contains(&traffic.time_needed(100).as_secs_f64()), "a heavier one hardly more");
    let ((old, refused), (young, _)) = (waiting(Duration::from_millis(3_500)), waiting(Duration::from_secs(2)));
    let old_time = old.call.time.clone();
    let (calls, callers) = take_in_time(vec![old, young], needed);
    assert_eq!((calls.len(), callers.len()), (1, 1));
    assert!(matches!(refused.await, Ok(Err(Error::Overloaded))));
    assert!(!old_time.send());
}

#[tokio::test]
async fn however_long_a_batch_took_a_new_call_is_sent() {
    let traffic = BatchTraffic::default();
    traffic.come_back(0, 1, Instant::now() - Duration::from_secs(20));
    let (calls, _) = take_in_time(vec![waiting(Duration::ZERO).0], traffic.time_needed(1));
    assert_eq!(calls.len(), 1);
}

#[test]
fn the_database_is_blamed_only_if_nothing_has_come_back_from_it() {
    let (traffic, time) = (BatchTraffic::default(), CallDeadline::arrived_before(Duration::from_secs(4)));
    assert!(matches!(traffic.not_sent(&time), Error::Unavailable(_)));
    traffic.come_back(0, 1, Instant::now());
    assert!(matches!(traffic.not_sent(&time), Error::Overloaded));
    let later = CallDeadline::start();
    assert!(matches!(traffic.not_sent(&later), Error::Unavailable(_)), "nothing since it arrived");
}

/// Calls that arrive while a batch is away form the next one; weights are kept to.
#[tokio::test]
async fn calls_gather_while_a_batch_is_away() {
    let (connect, sizes) = (Arc::new(tokio::sync::Semaphore::new(0)), Arc::new(std::sync::Mutex::new(Vec::new())));
    let (gate_in, sizes_in) = (connect.clone(), sizes.clone());
    let batcher: Batcher<u32, u32> = Batcher::open(&Handle::current(), SHAPE, open_limiter(), move |calls, ()| {
        let (connect, sizes) = (gate_in.clone(), sizes_in.clone());
        async move {
            sizes.lock().unwrap().push(calls.len());
            connect.acquire().await.unwrap().forget();
            calls.into_iter().map(|timed| Ok(timed.call * 2)).collect()
        }
    });
    let mut calls: Vec<_> = (0..1).map(|n| Box::pin(batcher.call(n, 1))).collect();
    // The first call leaves alone; the rest finds it away.
    assert!(futures_util::poll!(&mut calls[0]).is_pending());
    while sizes.lock().unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    calls.extend((1..16).map(|n| Box::pin(batcher.call(n, 1))));
    for call in &mut calls[1..] {
        assert!(futures_util::poll!(call).is_pending());
    }
    connect.add_permits(3);
    let answers = futures_util::future::join_all(calls).await;
    let answers: Vec<u32> = answers.into_iter().map(Result::unwrap).collect();
    assert_eq!(answers, (0..16).map(|n| n * 2).collect::<Vec<_>>());
    assert_eq!(*sizes.lock().unwrap(), [1, 10, 5]);
}

/// A batcher of two whose batches never come back, and how large those were that have left: a
/// lone call has, and two more wait behind it.
async fn lone_call_away_and_two_behind(patience: Duration) -> Arc<std::sync::Mutex<Vec<usize>>> {
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
        tokio::spawn(async move { batcher.call((), 1).await })
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
async fn while_a_batch_is_away_the_next_one_gathers() {
    let sizes = lone_call_away_and_two_behind(Duration::from_secs(3600)).await;
    assert_eq!(*sizes.lock().unwrap(), [1]);
}

#[tokio::test]
async fn a_slow_batch_does_not_hold_up_the_next() {
    let sizes = lone_call_away_and_two_behind(Duration::from_millis(1)).await;
    let all_left = async {
        while sizes.lock().unwrap().iter().sum::<usize>() < 3 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), all_left).await.expect("the others leave, too");
}

#[tokio::test]
async fn a_full_lane_refuses_at_once() {
    let shape = BatcherSettings { capacity: 1, ..SHAPE };
    let batcher: Batcher<(), ()> =
        Batcher::open(&Handle::current(), shape, open_limiter(), |_, ()| std::future::pending());
    let (mut first, mut second) = (Box::pin(batcher.call((), 1)), Box::pin(batcher.call((), 1)));
    assert!(futures_util::poll!(&mut first).is_pending());
    assert!(matches!(futures_util::poll!(&mut second), std::task::Poll::Ready(Err(Error::Overloaded))));
}

#[tokio::test]
async fn a_panic_is_told_to_every_caller_and_the_lane_lives_on() {
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum Panic {
        BeforeItIsSent,
        AfterItIsSent,
        Never,
    }
    let run = |calls: Vec<WithDeadline<Panic>>, ()| async move {
        let is_due = |when: Panic| calls.iter().any(|timed| timed.call == when);
        assert!(!is_due(Panic::BeforeItIsSent), "on purpose");
        calls.iter().for_each(|timed| assert!(timed.time.send()));
        assert!(!is_due(Panic::AfterItIsSent), "on purpose");
        calls.iter().map(|_| Ok(())).collect()
    };
    let batcher: Batcher<Panic, ()> = Batcher::open(&Handle::current(), SHAPE, open_limiter(), run);
    assert!(matches!(batcher.call(Panic::BeforeItIsSent, 1).await, Err(Error::Internal(_))));
    assert!(matches!(batcher.call(Panic::AfterItIsSent, 1).await, Err(Error::OutcomeUnknown(_))));
    assert!(batcher.call(Panic::Never, 1).await.is_ok());
}

#[tokio::test]
async fn a_caller_that_has_gone_is_not_run() {
    let ran = Arc::new(std::sync::Mutex::new(Vec::new()));
    let ran_in = ran.clone();
    let batcher: Batcher<u32, ()> =
        Batcher::open(&Handle::current(), SHAPE, open_limiter(), move |calls: Vec<WithDeadline<u32>>, ()| {
            ran_in.lock().unwrap().extend(calls.iter().map(|timed| timed.call));
            async move { calls.iter().map(|_| Ok(())).collect() }
        });
    let mut gone = Box::pin(batcher.call(1, 1));
    assert!(futures_util::poll!(&mut gone).is_pending());
    drop(gone);
    batcher.call(2, 1).await.unwrap();
    assert_eq!(*ran.lock().unwrap(), [2]);
}

#[tokio::test]
async fn a_refused_batch_is_split_until_the_culprit_stands_alone() {
    let run = |calls: Vec<i32>| async move {
        match calls.iter().any(|call| *call < 0) {
            true => Err(Error::Internal("refused".into())),
            false => Ok(calls.into_iter().map(Ok).collect()),
        }
    };
    let answers = split(vec![1, 2, -3, 4, 5], &run).await;
    let shown: Vec<Option<i32>> = answers.into_iter().map(Result::ok).collect();
    assert_eq!(shown, [Some(1), Some(2), None, Some(4), Some(5)]);
}

#[tokio::test]
async fn a_database_that_is_away_is_asked_once() {
    let tries = std::sync::atomic::AtomicUsize::new(0);
    let run = |_: Vec<i32>| {
        tries.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        async { Err::<Answers<i32>, _>(Error::unavailable("away".into())) }
    };
    let answers = split(vec![1, 2, 3], &run).await;
    assert!(answers.iter().all(|answer| matches!(answer, Err(Error::Unavailable(_)))));
    assert_eq!((answers.len(), tries.into_inner()), (3, 1));
}
