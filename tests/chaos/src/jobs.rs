//! What is being done to servers: one thing at a time, the others wait.
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

    /// One at a time: what a failover loses is compared while nothing else is done.
    fn go_on(&mut self) {
        if self.running.is_empty()
            && let Some(harm) = self.queued.pop_front()
        {
            let suffer = self.suffer.clone();
            self.running.spawn_blocking(move || suffer(harm));
        }
    }

    /// What was done; `None` where nothing is to be.
    ///
    /// # Cancellation
    /// Nothing is lost.
    pub(crate) async fn done(&mut self) -> Option<anyhow::Result<Done>> {
        let done = self.running.join_next().await?;
        self.go_on();
        Some(done.unwrap_or_else(|error| Err(error.into())))
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.running.is_empty() && self.queued.is_empty()
    }

    /// What waits is not done any more.
    pub(crate) fn forget(&mut self) {
        self.queued.clear();
    }
}
