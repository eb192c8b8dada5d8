//! Faults of servers. One fault runs at a time, and the others wait.
use std::collections::VecDeque;
use std::sync::Arc;

use tokio::task::JoinSet;

use crate::plan::Harm;
use crate::target::Done;

type Suffer = dyn Fn(Harm) -> anyhow::Result<Done> + Send + Sync;

pub(crate) struct Jobs {
    suffer: Arc<Suffer>,
    running: JoinSet<anyhow::Result<Done>>,
    queued: VecDeque<Harm>,
}

impl Jobs {
    /// `suffer` does it, and waits until it is done.
    pub(crate) fn new(suffer: impl Fn(Harm) -> anyhow::Result<Done> + Send + Sync + 'static) -> Self {
        Self { suffer: Arc::new(suffer), running: JoinSet::new(), queued: VecDeque::new() }
    }

    pub(crate) fn put(&mut self, harm: Harm) {
        self.queued.push_back(harm);
        self.go_on();
    }

    /// Starts the next job. Jobs run one at a time, because the comparison after a failover needs a store at rest.
    fn go_on(&mut self) {
        if self.running.is_empty()
            && let Some(harm) = self.queued.pop_front()
        {
            let suffer = self.suffer.clone();
            self.running.spawn_blocking(move || suffer(harm));
        }
    }

    /// Returns the result of the running job, or `None` without one.
    ///
    /// # Cancellation
    /// Safe.
    pub(crate) async fn done(&mut self) -> Option<anyhow::Result<Done>> {
        let done = self.running.join_next().await?;
        self.go_on();
        Some(done.unwrap_or_else(|error| Err(error.into())))
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.running.is_empty() && self.queued.is_empty()
    }

    /// Removes all waiting jobs.
    pub(crate) fn forget(&mut self) {
        self.queued.clear();
    }
}
