//! One at a time tries; those that came meanwhile share how it ended.
use std::time::{Duration, Instant};

use crate::failure::CallFailure;

/// A try that several want and one makes: a server that does not answer costs all of them one timeout, not one each.
#[derive(Debug, Default)]
pub(crate) struct SingleFlight(tokio::sync::Mutex<Option<(Instant, CallFailure)>>);

/// Not tried again sooner: a server that is down is not to be met by a storm.
const PAUSE: Duration = Duration::from_millis(20);

impl SingleFlight {
    /// `done` is asked first, by each in turn; where it has nothing, `attempt` is made.
    ///
    /// # Errors
    /// That of the attempt which ended last, if that was after this came, or a moment ago.
    ///
    /// # Cancellation
    /// The next one makes an attempt of its own.
    pub(crate) async fn share<T>(
        &self,
        done: impl FnOnce() -> Option<T>,
        attempt: impl Future<Output = Result<T, CallFailure>>,
    ) -> Result<T, CallFailure> {
        let came = Instant::now();
        let mut last = self.0.lock().await;
        if let Some(done) = done() {
            return Ok(done);
        }
        if let Some((_, failure)) = last.as_ref().filter(|(ended, _)| *ended >= came || ended.elapsed() < PAUSE) {
            return Err(failure.clone());
        }
        let ended = attempt.await;
        *last = ended.as_ref().err().map(|failure| (Instant::now(), failure.clone()));
        ended
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test]
    async fn those_that_came_during_a_failed_try_share_its_end_and_those_after_it_try_again() {
        let (flight, tries) = (SingleFlight::default(), AtomicUsize::new(0));
        let ask = || {
            flight.share(|| None::<()>, async {
                tries.fetch_add(1, Ordering::Relaxed);
                tokio::task::yield_now().await;
                Err(CallFailure::unreachable("nobody there"))
            })
        };
        let (one, two, three) = tokio::join!(ask(), ask(), ask());
        assert!(one.is_err() && two.is_err() && three.is_err());
        assert_eq!(tries.load(Ordering::Relaxed), 1);
        while tries.load(Ordering::Relaxed) == 1 {
            assert!(ask().await.is_err());
        }
    }
}
