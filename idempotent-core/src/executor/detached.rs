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
        match self.in_place(&mut run).await {
            Some(output) => output,
            None => Executor::detach(run).await,
        }
    }

    /// Moves a run to its own task like [`detached`](Self::detached), but on the current thread. The run need not be
    /// `Send`.
    ///
    /// # Panics
    /// Outside of a `LocalSet`, if the run does not complete at once.
    ///
    /// # Cancellation
    /// Dropping the returned future drops a run without the flag. Any other run continues.
    pub async fn detached_locally<F>(self, mut run: Pin<Box<F>>) -> F::Output
    where
        F: Future<Output: 'static> + 'static,
    {
        match self.in_place(&mut run).await {
            Some(output) => output,
            None => Executor::detach_locally(run).await,
        }
    }

    /// Polls the run until it completes, or until it is pending with the flag set.
    fn in_place<F: Future>(&self, run: &mut Pin<Box<F>>) -> impl Future<Output = Option<F::Output>> {
        poll_fn(|cx| match run.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if self.is_so() => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        })
    }
}

impl fmt::Debug for Begun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Begun").field(&self.is_so()).finish()
    }
}

#[cfg(test)]
#[allow(clippy::panic, reason = "a run panics")]
mod tests {
    use std::rc::Rc;

    use futures_util::FutureExt;
    use tokio::sync::oneshot;
    use tokio::task::LocalSet;

    use super::*;
    use crate::context::TaskContext;
    use crate::{MemoryStore, PreferredLanguages};

    /// The presence of an executor, and the preferred languages.
    type Seen = (bool, PreferredLanguages);

    #[tokio::test]
    async fn a_local_run_continues_without_its_caller_and_keeps_its_context() {
        let (proceed, may_proceed) = oneshot::channel::<()>();
        let (seen, was_seen) = oneshot::channel::<Seen>();
        let run = Box::pin(async move {
            let not_send = Rc::new(());
            may_proceed.await.ok();
            let _ = seen.send((Executor::current().is_some(), PreferredLanguages::current()));
            drop(not_send);
        });
        let languages = PreferredLanguages::new(["de"]);
        let context = TaskContext {
            executor: Some(Executor::new(MemoryStore::new())),
            languages: languages.clone(),
            ..TaskContext::default()
        };
        LocalSet::new()
            .run_until(async {
                let mut caller = Box::pin(context.enter(Begun(None).detached_locally(run)));
                assert!(caller.as_mut().now_or_never().is_none());
                drop(caller);
                proceed.send(()).ok();
                assert_eq!(was_seen.await, Ok((true, languages)));
            })
            .await;
    }

    #[tokio::test]
    async fn a_local_run_that_has_not_begun_ends_with_its_caller() {
        let (alive, ended) = oneshot::channel::<()>();
        let run = Box::pin(async move {
            let _alive = alive;
            std::future::pending::<()>().await;
        });
        let mut caller = Box::pin(Begun(Some(Arc::default())).detached_locally(run));
        // Outside of a `LocalSet`, because there is no task.
        assert!(caller.as_mut().now_or_never().is_none());
        drop(caller);
        assert!(ended.await.is_err());
    }

    #[tokio::test]
    #[should_panic(expected = "as told")]
    async fn a_panic_of_a_local_run_resumes_in_its_caller() {
        let run = Box::pin(async {
            tokio::task::yield_now().await;
            panic!("as told");
        });
        LocalSet::new().run_until(Begun(None).detached_locally(run)).await
    }
}
