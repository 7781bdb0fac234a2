use super::*;

const SHAPE: LaneShape =
    LaneShape { name: "test", capacity: 100, width: 1, patience: Duration::from_secs(3600), max_weight: 10 };

fn door(gate: Box<Gate>) -> Arc<Door> {
    Arc::new(Door { turnstile: Arc::new(Semaphore::new(1)), gate })
}

fn open_door() -> Arc<Door> {
    door(Box::new(|| async { Ok(()) }.boxed()))
}

#[tokio::test]
async fn behind_a_closed_gate_everybody_is_told_and_nothing_is_run() {
    let gate: Box<Gate> = Box::new(|| async { Err(Error::unavailable("away".into())) }.boxed());
    let lane: Lane<u32, ()> = Lane::open(&Handle::current(), SHAPE, door(gate), |_| async { panic!("must not run") });
    assert!(matches!(lane.call(1, 1).await, Err(Error::Unavailable(cause)) if cause == "away"));
}

#[tokio::test]
async fn who_leaves_while_the_gate_is_closed_is_not_run_when_it_opens() {
    let (opened, ran) = (Arc::new(tokio::sync::Semaphore::new(0)), Arc::new(std::sync::Mutex::new(Vec::new())));
    let (opened_in, ran_in) = (opened.clone(), ran.clone());
    let gate: Box<Gate> = Box::new(move || {
        let opened = opened_in.clone();
        async move { opened.acquire().await.map(|permit| permit.forget()).map_err(|_| Error::Overloaded) }.boxed()
    });
    let lane: Lane<u32, ()> = Lane::open(&Handle::current(), SHAPE, door(gate), move |calls: Vec<u32>| {
        ran_in.lock().unwrap().extend(calls.iter().copied());
        async move { calls.iter().map(|_| Ok(())).collect() }
    });
    let mut gone = Box::pin(lane.call(1, 1));
    assert!(futures_util::poll!(&mut gone).is_pending());
    tokio::task::yield_now().await;
    drop(gone);
    let stays = lane.call(2, 1);
    opened.add_permits(5);
    stays.await.unwrap();
    assert_eq!(*ran.lock().unwrap(), [2]);
}

/// Calls that arrive while a batch is away form the next one; weights are kept to.
#[tokio::test]
async fn calls_gather_while_a_batch_is_away() {
    let (gate, sizes) = (Arc::new(tokio::sync::Semaphore::new(0)), Arc::new(std::sync::Mutex::new(Vec::new())));
    let (gate_in, sizes_in) = (gate.clone(), sizes.clone());
    let lane: Lane<u32, u32> = Lane::open(&Handle::current(), SHAPE, open_door(), move |calls| {
        let (gate, sizes) = (gate_in.clone(), sizes_in.clone());
        async move {
            sizes.lock().unwrap().push(calls.len());
            gate.acquire().await.unwrap().forget();
            calls.into_iter().map(|call| Ok(call * 2)).collect()
        }
    });
    let mut calls: Vec<_> = (0..1).map(|n| Box::pin(lane.call(n, 1))).collect();
    // The first call leaves alone; the rest finds it away.
    assert!(futures_util::poll!(&mut calls[0]).is_pending());
    while sizes.lock().unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    calls.extend((1..16).map(|n| Box::pin(lane.call(n, 1))));
    for call in &mut calls[1..] {
        assert!(futures_util::poll!(call).is_pending());
    }
    gate.add_permits(3);
    let answers = futures_util::future::join_all(calls).await;
    let answers: Vec<u32> = answers.into_iter().map(Result::unwrap).collect();
    assert_eq!(answers, (0..16).map(|n| n * 2).collect::<Vec<_>>());
    assert_eq!(*sizes.lock().unwrap(), [1, 10, 5]);
}

/// A lane of two whose batches never come back, and how large those were that have left: a
/// lone call has, and two more wait behind it.
async fn lone_call_away_and_two_behind(patience: Duration) -> Arc<std::sync::Mutex<Vec<usize>>> {
    let sizes = Arc::new(std::sync::Mutex::new(Vec::new()));
    let sizes_in = sizes.clone();
    let shape = LaneShape { width: 2, patience, ..SHAPE };
    let lane: Lane<(), ()> = Lane::open(&Handle::current(), shape, open_door(), move |calls| {
        sizes_in.lock().unwrap().push(calls.len());
        std::future::pending()
    });
    let lane = Arc::new(lane);
    let call = || {
        let lane = lane.clone();
        tokio::spawn(async move { lane.call((), 1).await })
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
    let shape = LaneShape { capacity: 1, ..SHAPE };
    let lane: Lane<(), ()> = Lane::open(&Handle::current(), shape, open_door(), |_| std::future::pending());
    let (mut first, mut second) = (Box::pin(lane.call((), 1)), Box::pin(lane.call((), 1)));
    assert!(futures_util::poll!(&mut first).is_pending());
    assert!(matches!(futures_util::poll!(&mut second), std::task::Poll::Ready(Err(Error::Overloaded))));
}

#[tokio::test]
async fn a_panic_is_told_to_every_caller_and_the_lane_lives_on() {
    let lane: Lane<bool, ()> = Lane::open(&Handle::current(), SHAPE, open_door(), |calls: Vec<bool>| async move {
        assert!(!calls.contains(&true), "on purpose");
        calls.iter().map(|_| Ok(())).collect()
    });
    assert!(matches!(lane.call(true, 1).await, Err(Error::Unavailable(_))));
    assert!(lane.call(false, 1).await.is_ok());
}

#[tokio::test]
async fn a_caller_that_has_gone_is_not_run() {
    let ran = Arc::new(std::sync::Mutex::new(Vec::new()));
    let ran_in = ran.clone();
    let lane: Lane<u32, ()> = Lane::open(&Handle::current(), SHAPE, open_door(), move |calls: Vec<u32>| {
        ran_in.lock().unwrap().extend(calls.iter().copied());
        async move { calls.iter().map(|_| Ok(())).collect() }
    });
    let mut gone = Box::pin(lane.call(1, 1));
    assert!(futures_util::poll!(&mut gone).is_pending());
    drop(gone);
    lane.call(2, 1).await.unwrap();
    assert_eq!(*ran.lock().unwrap(), [2]);
}

#[tokio::test]
async fn a_refused_batch_is_split_until_the_culprit_stands_alone() {
    let run = |calls: Vec<i32>| async move {
        match calls.iter().any(|call| *call < 0) {
            true => Err(Error::Internal("refused".into())),
            false => Ok(calls),
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
        async { Err::<Vec<i32>, _>(Error::unavailable("away".into())) }
    };
    let answers = split(vec![1, 2, 3], &run).await;
    assert!(answers.iter().all(|answer| matches!(answer, Err(Error::Unavailable(_)))));
    assert_eq!((answers.len(), tries.into_inner()), (3, 1));
}
