//! Concurrent execution, for laws about races.
use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::task::Poll;

use tokio::sync::Barrier;

/// Runs every second round on several threads, where chance decides. In the other rounds, one thread runs the futures
/// in turns, with a switch at every wait of the store, so a gap between its read and its write is found reliably.
///
/// Returns the answers in the order of `racing`.
pub(crate) async fn race<F>(round: u32, racing: Vec<F>) -> Vec<F::Output>
where
    F: Future<Output: Send> + Send + 'static,
{
    if round.is_multiple_of(2) { in_turns(racing).await } else { at_once(racing).await }
}

/// Polls each future until it waits, then the next one.
pub(crate) async fn in_turns<F: Future>(racing: Vec<F>) -> Vec<F::Output> {
    let mut racing: Vec<_> = racing.into_iter().map(Box::pin).collect();
    let mut answers: Vec<_> = racing.iter().map(|_| None).collect();
    poll_fn(|cx| {
        for (racer, answer) in racing.iter_mut().zip(&mut answers) {
            if answer.is_none()
                && let Poll::Ready(said) = racer.as_mut().poll(cx)
            {
                *answer = Some(said);
            }
        }
        if answers.iter().all(Option::is_some) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    answers.into_iter().flatten().collect()
}

/// Starts all futures at the same moment.
#[allow(clippy::expect_used, reason = "a racer that panics has broken the law")]
async fn at_once<F>(racing: Vec<F>) -> Vec<F::Output>
where
    F: Future<Output: Send> + Send + 'static,
{
    let start = Arc::new(Barrier::new(racing.len()));
    let tasks: Vec<_> = racing
        .into_iter()
        .map(|racer| {
            let start = start.clone();
            tokio::spawn(async move {
                start.wait().await;
                racer.await
            })
        })
        .collect();
    let mut answers = Vec::new();
    for task in tasks {
        answers.push(task.await.expect("a racer that ends"));
    }
    answers
}
