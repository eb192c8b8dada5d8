//! A run that goes on when its caller is gone.
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use super::{Call, Executor};
/// From when on a run goes on without its caller: at once, or from where its handler begins if a duplicate of the call
/// waits for the run in flight. One that waits is worth nothing to a caller that is gone: left to itself it would hold
/// what it was called with, past every limit that the caller stood under.
#[doc(hidden)]
#[derive(Clone)]
pub struct Begun(Option<Arc<AtomicBool>>);

impl Begun {
    #[must_use]
    pub fn of(with: Option<&Executor>, call: &Call) -> Self {
        let of_executor = || with.and_then(|executor| executor.policy(&call.identity.scene).waits());
        let waits = call.policy.waits().or_else(of_executor);
        Self(waits.unwrap_or_default().then(Arc::default))
    }

    /// The handler, which says when it begins.
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

    /// Runs here until then, and from then on in a task of its own, unless it ends at once: what needs no waiting is not
    /// worth one.
    ///
    /// # Cancellation
    /// Dropping the returned future drops a run that has not come so far, and leaves any other running.
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
