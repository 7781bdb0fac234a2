//! Batches that the database refuses: their halves are run, down to the single call that causes the error.

use std::future::Future;

use crate::engine::batching::Answers;
use crate::error::Error;

/// Runs calls together. If the database refuses the batch, or the batch is too large, runs its halves, down to the
/// single call that causes the error. An outage is not caused by a call, and splits nothing.
pub(crate) async fn split<C, A, F, Fut>(calls: Vec<C>, run: &F) -> Answers<A>
where
    C: Clone + Send,
    A: Send,
    F: Fn(Vec<C>) -> Fut + Sync,
    Fut: Future<Output = Result<Answers<A>, Error>> + Send,
{
    split_if(is_refusal, calls, run).await
}

/// Does the same as [`split`], and also splits a batch that conflicts with others however often it is tried. Nothing of
/// such a batch may be stored.
pub(crate) async fn split_conflicts<C, A, F, Fut>(calls: Vec<C>, run: &F) -> Answers<A>
where
    C: Clone + Send,
    A: Send,
    F: Fn(Vec<C>) -> Fut + Sync,
    Fut: Future<Output = Result<Answers<A>, Error>> + Send,
{
    split_if(|error| is_refusal(error) || error.is_conflict(), calls, run).await
}

async fn split_if<C, A, F, Fut>(splits: fn(&Error) -> bool, calls: Vec<C>, run: &F) -> Answers<A>
where
    C: Clone + Send,
    A: Send,
    F: Fn(Vec<C>) -> Fut + Sync,
    Fut: Future<Output = Result<Answers<A>, Error>> + Send,
{
    let mut answers = Vec::with_capacity(calls.len());
    let mut pending = if calls.is_empty() { Vec::new() } else { vec![calls] };
    while let Some(mut calls) = pending.pop() {
        match run(calls.clone()).await {
            Ok(batch) => answers.extend(batch),
            Err(error) if calls.len() > 1 && splits(&error) => {
                log::warn!(calls = calls.len(); "a batch was refused and is split: {error}");
                let second = calls.split_off(calls.len() / 2);
                pending.extend([second, calls]);
            }
            Err(error) if calls.len() == 1 => answers.push(Err(error)),
            Err(outage) => answers.extend(calls.iter().map(|_| Err(outage.for_another()))),
        }
    }
    answers
}

fn is_refusal(error: &Error) -> bool {
    matches!(error, Error::Internal(_) | Error::Invalid(_))
}
