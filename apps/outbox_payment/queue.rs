//! A broker with one queue, in this process. It can be unavailable, lose a message, and ignore acknowledgements.
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use idempotent::mq::{
    DelaySupport, Delivery, OutboundMessage, Position, Publish, PublishError, PublishErrorKind, Published, Received,
    Settle, Settlement, Source, SourceCapabilities, SourceError,
};
use tokio::sync::Notify;

#[derive(Clone, Debug, Default)]
pub(crate) struct Queue(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    state: Mutex<State>,
    came: Notify,
}

#[derive(Debug, Default)]
struct State {
    is_down: bool,
    loses_next: bool,
    is_deaf: bool,
    /// The place of the last message.
    last: u64,
    waiting: VecDeque<(u64, OutboundMessage)>,
    /// Deliveries in flight: received and not acknowledged.
    held: BTreeMap<u64, OutboundMessage>,
    delivered: u64,
}

impl Queue {
    pub(crate) fn is_down(&self, down: bool) {
        self.state().is_down = down;
    }

    /// The next message is accepted and gone.
    pub(crate) fn lose_next(&self) {
        self.state().loses_next = true;
    }

    /// Sets whether acknowledgements are lost.
    pub(crate) fn is_deaf(&self, deaf: bool) {
        self.state().is_deaf = deaf;
    }

    /// A consumer is gone: what it had is delivered again.
    pub(crate) fn redeliver(&self) -> usize {
        let mut state = self.state();
        let held = std::mem::take(&mut state.held);
        let count = held.len();
        state.waiting.extend(held);
        drop(state);
        self.0.came.notify_one();
        count
    }

    /// Returns the number of messages in the queue and in flight.
    pub(crate) fn kept(&self) -> usize {
        let state = self.state();
        state.waiting.len() + state.held.len()
    }

    pub(crate) fn delivered(&self) -> u64 {
        self.state().delivered
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn back(&self, place: u64) {
        let mut state = self.state();
        if let Some(message) = state.held.remove(&place) {
            state.waiting.push_back((place, message));
        }
        drop(state);
        self.0.came.notify_one();
    }
}

#[async_trait]
impl Publish for Queue {
    async fn publish(&self, messages: &[OutboundMessage]) -> Vec<Result<Published, PublishError>> {
        let mut state = self.state();
        let accept = |message: &OutboundMessage| {
            if state.is_down {
                return Err(PublishError::new(PublishErrorKind::Unsent, "the broker is down"));
            }
            state.last += 1;
            let place = state.last;
            if !std::mem::take(&mut state.loses_next) {
                state.waiting.push_back((place, message.clone()));
            }
            Ok(Published::at(Position::of(message.topic.as_str()).partition(0).offset(place)))
        };
        let told = messages.iter().map(accept).collect();
        drop(state);
        self.0.came.notify_one();
        told
    }
}

#[async_trait]
impl Source for Queue {
    type Tag = u64;

    fn capabilities(&self) -> SourceCapabilities {
        SourceCapabilities::new(DelaySupport::Any)
    }

    fn settler(&self) -> Arc<dyn Settle<u64>> {
        Arc::new(self.clone())
    }

    async fn receive(&mut self, room: usize) -> Result<Received<u64>, SourceError> {
        loop {
            let some: Vec<_> = {
                let mut state = self.state();
                let most = state.waiting.len().min(room);
                let some: Vec<_> = state.waiting.drain(..most).collect();
                state.held.extend(some.iter().cloned());
                state.delivered += most as u64;
                some
            };
            if !some.is_empty() {
                let delivery = |(place, message): (u64, OutboundMessage)| {
                    let position = Position::of(message.topic.as_str()).partition(0).offset(place);
                    let mut delivery = Delivery::new(position, message.body).id(message.id);
                    // A consumer's log knows the outbox's messages by a header.
                    delivery.headers = message.headers;
                    (delivery, place)
                };
                return Ok(Received::Deliveries(some.into_iter().map(delivery).collect()));
            }
            self.0.came.notified().await;
        }
    }

    async fn close(&mut self) {}
}

#[async_trait]
impl Settle<u64> for Queue {
    async fn settle(&self, _: &Delivery, place: &u64, settlement: &Settlement) -> Result<(), SourceError> {
        if self.state().is_deaf {
            std::future::pending::<()>().await;
        }
        match settlement {
            Settlement::Retry(retry) => {
                let (queue, place, after) = (self.clone(), *place, retry.after);
                tokio::spawn(async move {
                    tokio::time::sleep(after).await;
                    queue.back(place);
                });
            }
            Settlement::GiveBack => self.back(*place),
            _ => drop(self.state().held.remove(place)),
        }
        Ok(())
    }

    async fn keep_alive(&self, _: &[&u64]) -> Result<(), SourceError> {
        Ok(())
    }
}
