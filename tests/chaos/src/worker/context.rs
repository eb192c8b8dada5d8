//! The context of a handler: the store, the step journal, the resources, and the harness.
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use idempotent_testkit::history::{Journal, Kind, Line, Recording};
use tokio::sync::{mpsc, oneshot};

use crate::broken_stores::Weakness;
use crate::dice::Dice;
use crate::dying_store::DyingStore;
use crate::journal::Part;
use crate::target::connect;
use crate::time;
use crate::wire::{News, Start};

#[derive(Debug)]
pub(crate) struct HandlerContext {
    pub(crate) id: u32,
    pub(crate) store: Recording,
    pub(crate) mortal: Arc<DyingStore>,
    pub(super) journal: Arc<Part>,
    pub(super) effects: File,
    news: mpsc::UnboundedSender<News>,
    written: Mutex<HashMap<u64, oneshot::Sender<bool>>>,
    asked: AtomicU64,
}

impl HandlerContext {
    /// Once the store can be reached.
    pub(crate) async fn start(start: &Start, news: mpsc::UnboundedSender<News>) -> anyhow::Result<Self> {
        let journal = Arc::new(Part::create(&start.history)?);
        let dice = Dice::new(start.seed, u64::from(start.worker));
        let weakness = start.weakness.as_deref().and_then(Weakness::named);
        let store = loop {
            match connect(&start.store, weakness).await {
                Ok(store) => break store,
                // Faults do not wait until it has started.
                Err(error) => eprintln!("worker {}: {error:#}", start.worker),
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        };
        let keeps = start.origin.as_ref().and_then(|origin| origin.flaw) == Some(crate::mq::Flaw::RequeueUnreleased);
        let mortal = Arc::new(DyingStore::new(store, dice, keeps));
        Ok(Self {
            id: start.worker,
            store: Recording::new(mortal.clone(), journal.clone(), start.worker),
            mortal,
            journal,
            effects: OpenOptions::new().create(true).append(true).open(&start.effects)?,
            news,
            written: Mutex::default(),
            asked: AtomicU64::new(0),
        })
    }

    pub(crate) fn note(&self, key: &str, event: Kind) {
        self.journal.event(&Line { key: Some(key.to_owned()), ..Line::new(time::now(), self.id, event) });
    }

    pub(crate) fn tell(&self, news: News) {
        // Without a receiver, the worker is about to end.
        let _ = self.news.send(news);
    }

    /// The fenced resource has answered.
    pub(crate) fn wrote(&self, effect: u64, accepted: bool) {
        let waits = self.written().remove(&effect);
        waits.map(|waits| waits.send(accepted));
    }

    pub(super) fn asks(&self) -> (u64, oneshot::Receiver<bool>) {
        let (waits, written) = oneshot::channel();
        let effect = self.asked.fetch_add(1, Ordering::Relaxed);
        self.written().insert(effect, waits);
        (effect, written)
    }

    fn written(&self) -> MutexGuard<'_, HashMap<u64, oneshot::Sender<bool>>> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
