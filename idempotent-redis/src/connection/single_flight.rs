//! Sharing of one attempt among concurrent callers.
use std::time::{Duration, Instant};

use crate::failure::CallFailure;

/// A guard that runs one attempt at a time. Callers that arrive during a failed attempt share its error, so a dead
/// server costs all of them one timeout instead of one each.
#[derive(Debug, Default)]
pub(crate) struct SingleFlight(tokio::sync::Mutex<Option<(Instant, CallFailure)>>);

/// Minimum pause after a failed attempt. The pause protects a failing server from a connection storm.
const PAUSE: Duration = Duration::from_millis(20);

impl SingleFlight {
    /// Runs `attempt` unless `done` returns a value. Each caller checks `done` once it is the caller's turn.
    ///
    /// # Errors
    /// The error of the last attempt, if that attempt ended after this call began or within the pause.
    ///
    /// # Cancellation
    /// The attempt is dropped, and the next caller starts its own.
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
    async fn callers_during_a_failed_attempt_share_its_error_and_later_ones_retry() {
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
