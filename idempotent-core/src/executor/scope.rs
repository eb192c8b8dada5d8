//! The executor in scope: installing one for the process, and scopes that tasks carry.
use std::future::Future;
use std::panic::resume_unwind;
use std::sync::{Arc, OnceLock};

use tracing::Instrument;

use super::Executor;
use crate::Redelivery;
use crate::context::TaskContext;

static INSTALLED: OnceLock<Executor> = OnceLock::new();

impl Executor {
    /// Makes this the process's executor, for calls without `with = …` outside of any scope. For `main` only: a
    /// library that installs one takes the choice away from its users.
    ///
    /// # Errors
    /// [`AlreadyInstalled`] if there is one already: the first call wins.
    pub fn install(self) -> Result<(), AlreadyInstalled> {
        INSTALLED.set(self).map_err(AlreadyInstalled)
    }

    /// Runs `future` with this executor in scope; scopes nest. A task spawned inside leaves the scope unless it
    /// is spawned by [`detach`](Self::detach).
    ///
    /// # Cancellation
    /// Dropping it drops `future`.
    pub async fn scope<F: Future>(&self, future: F) -> F::Output {
        TaskContext { executor: Some(self.clone()), ..TaskContext::current() }.enter(future).await
    }

    /// As [`scope`](Self::scope), for the handler of a delivery: a run of the scene `mq` in it, which may be an annotated
    /// function's, is refused where its lease or retention does not fit how the broker redelivers, with both in the text.
    /// Not one inside another run.
    ///
    /// # Cancellation
    /// Dropping it drops `future`.
    pub async fn scope_of_delivery<F: Future>(&self, redelivery: Arc<Redelivery>, future: F) -> F::Output {
        let redelivery = Some(redelivery);
        TaskContext { executor: Some(self.clone()), redelivery, ..TaskContext::current() }.enter(future).await
    }

    /// As [`scope`](Self::scope), for the handler of a delivery that says which attempt it is, the first being 1: a run whose
    /// record is rolled back with its transaction ([`ClaimMode::Inside`](crate::ClaimMode::Inside)) leaves no count behind, so it
    /// goes by this one. Where the record counts more, that stands; where records outlive a failure, they alone count. Not for
    /// a run inside another one. A handler with several such runs, one behind the other, has one number for all of them: it is
    /// the message that is tried again.
    ///
    /// # Cancellation
    /// Dropping it drops `future`.
    pub async fn scope_of_attempt<F: Future>(&self, attempt: u32, future: F) -> F::Output {
        TaskContext { executor: Some(self.clone()), delivery_attempt: Some(attempt), ..TaskContext::current() }
            .enter(future)
            .await
    }

    /// The executor in scope, else the installed one.
    #[must_use]
    pub fn current() -> Option<Self> {
        TaskContext::current().executor.or_else(|| INSTALLED.get().cloned())
    }

    /// Runs `future` in a task of its own that takes scope, lease and span along. A panic in it comes through.
    ///
    /// # Cancellation
    /// Dropping the returned future leaves the task running: that is what it is for.
    pub async fn detach<F>(future: F) -> F::Output
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        match tokio::spawn(TaskContext::current().enter(future).in_current_span()).await {
            Ok(output) => output,
            Err(ended) => match ended.try_into_panic() {
                Ok(panic) => resume_unwind(panic),
                // The runtime is going down, and the caller with it.
                Err(_) => std::future::pending().await,
            },
        }
    }
}

/// The process has an executor, and keeps it. Gives the other one back.
#[derive(Debug, thiserror::Error)]
#[error("an executor is installed already, the first one stays; pass this one by `with = …` or `executor.scope(…)`")]
pub struct AlreadyInstalled(pub Executor);

/// What `with = …` takes.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "`{Self}` holds no executor",
    label = "this expression",
    note = "give an `Executor`, an `Arc` of it, or a state that is `AsRef<Executor>`; for an `Arc` of a state say `with = *state`"
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
