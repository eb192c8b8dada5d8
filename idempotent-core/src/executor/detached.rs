//! Runs that continue after their caller is gone.
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use super::{Call, Executor};
use crate::Policy;

/// A flag for the moment from which a run continues without its caller.
///
/// A run continues from its first poll, or from the start of its handler if duplicates of the call wait for a run in
/// flight. A duplicate that only waits is useless without its caller, and would keep its arguments past every limit on
/// the caller.
#[doc(hidden)]
#[derive(Clone)]
pub struct Begun(Option<Arc<AtomicBool>>);

impl Begun {
    #[must_use]
    pub fn of(with: Option<&Executor>, call: &Call) -> Self {
        let of_executor = || with.and_then(|executor| executor.policy(&call.identity.scene).waits());
        let waits = call.policy.as_deref().and_then(Policy::waits).or_else(of_executor);
        Self(waits.unwrap_or_default().then(Arc::default))
    }

    /// Wraps the handler, so that its start sets the flag.
    pub fn told<F, Fut>(self, run: F) -> impl FnOnce() -> Fut
    where
        F: FnOnce() -> Fut,
    {
        move || {
            if let Some(begun) = self.0 {
                begun.store(true, Ordering::Relaxed);
            }
            run()
        }
    }

    fn is_so(&self) -> bool {
        self.0.as_ref().is_none_or(|begun| begun.load(Ordering::Relaxed))
    }

    /// Polls the run in place until the flag is set, and then moves the run to its own task. A run that completes at
    /// once needs no task.
    ///
    /// # Cancellation
    /// Dropping the returned future drops a run without the flag. Any other run continues.
    pub async fn detached<F>(self, mut run: Pin<Box<F>>) -> F::Output
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        let here = poll_fn(|cx| match run.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if self.is_so() => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        });
        match here.await {
            Some(output) => output,
            None => Executor::detach(run).await,
        }
    }
}

impl fmt::Debug for Begun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Begun").field(&self.is_so()).finish()
    }
}
