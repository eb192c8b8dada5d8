//! The executor in scope: the executor of the process, and the scopes of tasks.
use std::future::Future;
use std::panic::resume_unwind;
use std::sync::OnceLock;

use tokio::task::JoinHandle;
use tracing::Instrument;

use super::{DeliveryContext, Executor};
use crate::context::TaskContext;

static INSTALLED: OnceLock<Executor> = OnceLock::new();

impl Executor {
    /// Installs the executor of the process, for calls outside of any scope without `with = …`. Only `main` should
    /// install an executor: a library that does so takes the choice away from its users.
    ///
    /// # Errors
    /// [`AlreadyInstalled`] if an executor is installed already.
    pub fn install(self) -> Result<(), AlreadyInstalled> {
        INSTALLED.set(self).map_err(AlreadyInstalled)
    }

    /// Runs `future` with this executor in scope. Scopes nest. A task spawned inside leaves the scope, unless it is
    /// spawned by [`detach`](Self::detach).
    ///
    /// # Cancellation
    /// Dropping the returned future drops `future`.
    pub async fn scope<F: Future>(&self, future: F) -> F::Output {
        TaskContext { executor: Some(self.clone()), ..TaskContext::current() }.enter(future).await
    }

    /// Runs a future like [`scope`](Self::scope), for the handler of a delivery that `delivery` describes.
    ///
    /// # Cancellation
    /// Dropping the returned future drops `future`.
    pub async fn scope_of_delivery<F: Future>(&self, delivery: DeliveryContext, future: F) -> F::Output {
        TaskContext { executor: Some(self.clone()), delivery, ..TaskContext::current() }.enter(future).await
    }

    /// Runs a future with the description of its delivery, and the executor that is in scope already. Reads the scope of the
    /// calling task at once and not at the first poll: an `async fn` would store the future twice.
    #[doc(hidden)]
    pub fn scope_without_executor<F: Future>(delivery: DeliveryContext, future: F) -> impl Future<Output = F::Output> {
        TaskContext { delivery, ..TaskContext::current() }.enter(future)
    }

    /// Returns the executor in scope, or the installed executor outside of any scope.
    #[must_use]
    pub fn current() -> Option<Self> {
        TaskContext::current().executor.or_else(|| INSTALLED.get().cloned())
    }

    /// Runs `future` in a separate task that inherits scope, lease and span. A panic in the task resumes in the caller.
    ///
    /// # Cancellation
    /// Dropping the returned future leaves the task running.
    pub async fn detach<F>(future: F) -> F::Output
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        ended(tokio::spawn(TaskContext::current().enter(future).in_current_span())).await
    }

    /// Runs `future` like [`detach`](Self::detach), in a task of the current thread. The future need not be `Send`.
    ///
    /// # Panics
    /// Outside of a `LocalSet`.
    ///
    /// # Cancellation
    /// Dropping the returned future leaves the task running.
    #[doc(hidden)]
    pub async fn detach_locally<F>(future: F) -> F::Output
    where
        F: Future<Output: 'static> + 'static,
    {
        ended(tokio::task::spawn_local(TaskContext::current().enter(future).in_current_span())).await
    }
}

/// Returns the output of a task. A panic in the task resumes here.
async fn ended<T>(task: JoinHandle<T>) -> T {
    match task.await {
        Ok(output) => output,
        Err(ended) => match ended.try_into_panic() {
            Ok(panic) => resume_unwind(panic),
            // The runtime is shutting down, and the caller with it.
            Err(_) => std::future::pending().await,
        },
    }
}

/// The error of [`Executor::install`] if the process has an executor already. Contains the executor that was not
/// installed.
#[derive(Debug, thiserror::Error)]
#[error("an executor is already installed; pass this one with `with = …` or `executor.scope(…)`")]
pub struct AlreadyInstalled(pub Executor);

/// A value that contains an executor, for `with = …`.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not contain an executor",
    label = "this expression",
    note = "use an `Executor`, an `Arc<Executor>`, or a state that implements `AsRef<Executor>`; for an `Arc` of a state, write `with = *state`"
)]
pub trait HoldsExecutor {
    fn held(&self) -> &Executor;
}

#[diagnostic::do_not_recommend]
impl<T: AsRef<Executor> + ?Sized> HoldsExecutor for T {
    fn held(&self) -> &Executor {
        self.as_ref()
    }
}

#[doc(hidden)]
pub fn executor(holder: &(impl HoldsExecutor + ?Sized)) -> &Executor {
    holder.held()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::MemoryStore;

    #[test]
    fn the_first_installed_executor_is_the_one_of_the_process() {
        let (first, second) = (Executor::new(MemoryStore::new()), Executor::new(MemoryStore::new()));
        first.clone().install().unwrap();
        assert!(second.install().is_err());
        assert!(std::sync::Arc::ptr_eq(&Executor::current().unwrap().0, &first.0));
    }
}
