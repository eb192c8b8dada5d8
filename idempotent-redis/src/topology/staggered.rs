//! Asks several that should know the same, one after the other, without waiting long for any.
use std::time::Duration;

use tokio::task::JoinSet;

use crate::failure::CallFailure;

/// Who has not answered by now is not waited for alone: the next is asked as well.
const HEAD_START: Duration = Duration::from_millis(100);

/// The first answer that is good; else the best one, by `better`, once all have answered, or `timeouts` is over and one
/// has: one that never answers may not keep the others from being believed.
///
/// # Errors
/// The last one's, where none answered.
///
/// # Cancellation
/// Those under way are given up.
pub(crate) async fn first<T: Send + 'static>(
    tries: impl IntoIterator<Item = impl Future<Output = Result<T, CallFailure>> + Send + 'static>,
    good: impl Fn(&T) -> bool,
    better: impl Fn(&T, &T) -> bool,
    timeouts: Duration,
) -> Result<T, CallFailure> {
    let over = tokio::time::sleep(timeouts);
    tokio::pin!(over);
    let mut left = tries.into_iter();
    let mut under_way = JoinSet::new();
    let mut best = None;
    let mut failure = CallFailure::unreachable("no server to connect to");
    loop {
        let more = match left.next() {
            Some(next) => {
                under_way.spawn(next);
                true
            }
            None => false,
        };
        let ended = tokio::select! {
            biased;
            ended = under_way.join_next() => ended,
            () = &mut over, if best.is_some() => return best.ok_or(failure),
            () = tokio::time::sleep(HEAD_START), if more => continue,
        };
        match ended {
            Some(Ok(Ok(answer))) if good(&answer) => return Ok(answer),
            Some(Ok(Ok(answer))) => {
                if best.as_ref().is_none_or(|best| better(&answer, best)) {
                    best = Some(answer);
                }
            }
            Some(Ok(Err(why))) => failure = why,
            // It was given up with its runtime.
            Some(Err(_)) => {}
            None => return best.ok_or(failure),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    type Asked = Result<u32, CallFailure>;

    async fn ask(all: Vec<std::pin::Pin<Box<dyn Future<Output = Asked> + Send>>>) -> Asked {
        first(all, |answer| *answer >= 10, |one, other| one > other, Duration::from_secs(1)).await
    }

    #[tokio::test]
    async fn one_that_hangs_or_fails_does_not_keep_the_next_from_being_asked() {
        let hangs = Box::pin(std::future::pending());
        let fails = Box::pin(async { Err(CallFailure::unreachable("gone")) });
        assert_eq!(ask(vec![hangs, fails, Box::pin(async { Ok(10) })]).await.unwrap(), 10);
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_hangs_does_not_keep_the_best_of_the_others_from_standing_in_the_end() {
        let late = || {
            Box::pin(async {
                tokio::time::sleep(Duration::from_secs(2)).await;
                Ok(3)
            })
        };
        assert_eq!(ask(vec![Box::pin(std::future::pending()), Box::pin(async { Ok(7) }), late()]).await.unwrap(), 7);
        assert_eq!(ask(vec![Box::pin(std::future::pending()), late()]).await.unwrap(), 3);
    }

    #[tokio::test]
    async fn where_none_is_good_the_best_stands_and_without_an_answer_the_failure() {
        let reply =
            |number: u32| Box::pin(async move { Ok(number) }) as std::pin::Pin<Box<dyn Future<Output = Asked> + Send>>;
        assert_eq!(ask(vec![reply(2), reply(7), reply(4)]).await.unwrap(), 7);
        let failed = ask(vec![Box::pin(async { Err(CallFailure::unreachable("gone")) })]).await.unwrap_err();
        assert!(failed.text().contains("gone"), "{failed:?}");
    }
}
