//! Staggered queries to several equivalent servers.
use std::time::Duration;

use tokio::task::JoinSet;

use crate::failure::CallFailure;

/// Delay after which the next server is queried as well.
const HEAD_START: Duration = Duration::from_millis(100);

/// Returns the first reply that is `good`. Otherwise returns the best reply according to `better`, once all servers
/// have replied, or once `timeout` has passed and a reply is there. A server that never replies does not block the
/// others.
///
/// # Errors
/// The last error, if no server replied.
///
/// # Cancellation
/// Pending queries are dropped.
pub(crate) async fn first<T: Send + 'static>(
    tries: impl IntoIterator<Item = impl Future<Output = Result<T, CallFailure>> + Send + 'static>,
    good: impl Fn(&T) -> bool,
    better: impl Fn(&T, &T) -> bool,
    timeout: Duration,
) -> Result<T, CallFailure> {
    let over = tokio::time::sleep(timeout);
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
            // The query ended with its runtime.
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
    async fn a_hanging_or_failing_server_does_not_block_the_next_query() {
        let hangs = Box::pin(std::future::pending());
        let fails = Box::pin(async { Err(CallFailure::unreachable("gone")) });
        assert_eq!(ask(vec![hangs, fails, Box::pin(async { Ok(10) })]).await.unwrap(), 10);
    }

    #[tokio::test(start_paused = true)]
    async fn a_hanging_server_does_not_block_the_best_of_the_other_replies() {
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
    async fn without_a_good_reply_the_best_one_or_the_last_failure_is_returned() {
        let reply =
            |number: u32| Box::pin(async move { Ok(number) }) as std::pin::Pin<Box<dyn Future<Output = Asked> + Send>>;
        assert_eq!(ask(vec![reply(2), reply(7), reply(4)]).await.unwrap(), 7);
        let failed = ask(vec![Box::pin(async { Err(CallFailure::unreachable("gone")) })]).await.unwrap_err();
        assert!(failed.text().contains("gone"), "{failed:?}");
    }
}
