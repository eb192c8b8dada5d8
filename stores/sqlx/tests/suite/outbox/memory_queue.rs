//! A queue in this process that redelivers messages until they are acknowledged.
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use idempotent_mq::{
    DelaySupport, Delivery, OutboundMessage, Position, Received, Settle, Settlement, Source, SourceCapabilities,
    SourceError,
};
use tokio::sync::{Notify, Semaphore, watch};

#[derive(Clone)]
pub(crate) struct Line(Arc<Inner>);

struct Inner {
    waiting: Mutex<VecDeque<Delivery>>,
    came: Notify,
    /// The settled messages, with their settlement.
    settled: watch::Sender<Vec<(String, &'static str)>>,
    /// One permit for each settlement.
    gate: Semaphore,
}

impl Line {
    pub(crate) fn new() -> Self {
        let (settled, gate) = (watch::Sender::default(), Semaphore::new(1_000_000));
        Self(Arc::new(Inner { waiting: Mutex::default(), came: Notify::new(), settled, gate }))
    }

    /// Delivers a published message at this offset.
    pub(crate) fn deliver(&self, message: &OutboundMessage, offset: u64) {
        let position = Position::of(&*message.topic).partition(0).offset(offset);
        let mut delivery = Delivery::new(position, message.body.clone()).id(&message.id);
        delivery.headers = message.headers.clone();
        self.push(delivery);
    }

    pub(crate) fn push(&self, delivery: Delivery) {
        self.0.waiting.lock().unwrap().push_back(delivery);
        self.0.came.notify_one();
    }

    pub(crate) fn gate(&self) -> &Semaphore {
        &self.0.gate
    }

    pub(crate) fn settled(&self) -> Vec<(String, &'static str)> {
        self.0.settled.borrow().clone()
    }

    /// Ends once so many were settled.
    pub(crate) async fn has_settled(&self, count: usize) {
        self.0.settled.subscribe().wait_for(|settled| settled.len() >= count).await.unwrap();
    }
}

#[async_trait]
impl Source for Line {
    type Tag = ();

    fn capabilities(&self) -> SourceCapabilities {
        SourceCapabilities::new(DelaySupport::Any)
    }

    fn settler(&self) -> Arc<dyn Settle<()>> {
        Arc::new(self.clone())
    }

    async fn receive(&mut self, room: usize) -> Result<Received<()>, SourceError> {
        loop {
            let deliveries: Vec<_> = {
                let mut waiting = self.0.waiting.lock().unwrap();
                let most = waiting.len().min(room);
                waiting.drain(..most).map(|delivery| (delivery, ())).collect()
            };
            if !deliveries.is_empty() {
                return Ok(Received::Deliveries(deliveries));
            }
            self.0.came.notified().await;
        }
    }

    async fn close(&mut self) {}
}

#[async_trait]
impl Settle<()> for Line {
    async fn settle(&self, delivery: &Delivery, (): &(), settlement: &Settlement) -> Result<(), SourceError> {
        self.0.gate.acquire().await.unwrap().forget();
        let id = delivery.id.clone().unwrap_or_default();
        self.0.settled.send_modify(|settled| settled.push((id, settlement.name())));
        Ok(())
    }

    async fn keep_alive(&self, _: &[&()]) -> Result<(), SourceError> {
        Ok(())
    }
}
