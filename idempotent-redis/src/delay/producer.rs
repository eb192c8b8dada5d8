//! The queue as a producer: for an outbox's relay, and for work that is scheduled.
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use idempotent_core::Micros;
use idempotent_mq::{
    Cancelled, Delay, DelayError, DelayErrorKind, Outbound, Position, Publish, PublishError, PublishErrorKind,
    Published, Scheduled,
};

use super::message::DelayMessage;
use super::queue::DelayQueue;

/// Sends messages to the topic that each names, with the settings and by the connections of a queue. Those of one
/// aggregate lie in one slot.
///
/// Gives up a message when the server has not answered within the response timeout, and what could not be sent at all
/// after 2 s.
#[derive(Clone, Debug)]
#[must_use]
pub struct DelayProducer {
    queue: DelayQueue,
    after: Duration,
}

impl DelayProducer {
    /// One that sends messages which are due at once.
    pub fn new(queue: &DelayQueue) -> Self {
        Self { queue: queue.clone(), after: Duration::ZERO }
    }

    /// So long after they were sent are messages due.
    ///
    /// # Default
    /// 0 s
    pub fn after(mut self, delay: Duration) -> Self {
        self.after = delay;
        self
    }

    async fn send(&self, outbound: &Outbound) -> Result<Published, PublishError> {
        let beside;
        let queue = if outbound.topic == self.queue.topic() {
            &self.queue
        } else {
            beside = self.queue.beside(&outbound.topic).map_err(unpublished)?;
            &beside
        };
        let mut message = DelayMessage::after(self.after, outbound.body.clone()).id(&outbound.id);
        message.headers = outbound.headers.clone();
        message.business_key.clone_from(&outbound.business_key);
        message.basis.clone_from(&outbound.aggregate);
        let slot = message.basis().map_or(0, |basis| queue.0.topic.slot_of(basis));
        queue.send(&message).await.map_err(unpublished)?;
        Ok(Published::at(Position::of(outbound.topic.as_str()).partition(u32::from(slot))))
    }

    /// One behind the other; what follows one that was not accepted stays behind.
    async fn send_chain(&self, chain: Vec<(usize, &Outbound)>) -> Vec<(usize, Result<Published, PublishError>)> {
        let (mut told, mut held_up) = (Vec::with_capacity(chain.len()), false);
        for (at, message) in chain {
            let sent = if held_up {
                Err(PublishError::new(PublishErrorKind::Unsent, "an earlier one of its aggregate was not accepted"))
            } else {
                self.send(message).await
            };
            held_up |= sent.is_err();
            told.push((at, sent));
        }
        told
    }
}

#[async_trait]
impl Publish for DelayProducer {
    async fn publish(&self, messages: &[Outbound]) -> Vec<Result<Published, PublishError>> {
        let mut chains: Vec<(Option<&str>, Vec<(usize, &Outbound)>)> = Vec::new();
        let mut known = std::collections::HashMap::new();
        for (at, message) in messages.iter().enumerate() {
            let aggregate = message.aggregate.as_deref();
            match aggregate.and_then(|aggregate| known.get(aggregate).copied()) {
                Some(chain) => {
                    let chain: &mut (_, Vec<_>) = &mut chains[chain];
                    chain.1.push((at, message));
                }
                None => {
                    if let Some(aggregate) = aggregate {
                        known.insert(aggregate, chains.len());
                    }
                    chains.push((aggregate, vec![(at, message)]));
                }
            }
        }
        let told = join_all(chains.into_iter().map(|(_, chain)| self.send_chain(chain))).await;
        let mut told: Vec<_> = told.into_iter().flatten().collect();
        told.sort_by_key(|(at, _)| *at);
        told.into_iter().map(|(_, sent)| sent).collect()
    }
}

fn unpublished(error: DelayError) -> PublishError {
    let kind = match error.kind() {
        DelayErrorKind::NotApplied => PublishErrorKind::Unsent,
        DelayErrorKind::Ambiguous => PublishErrorKind::Unconfirmed,
        _ => PublishErrorKind::Refused,
    };
    PublishError::new(kind, error.to_string()).with_cause(error)
}

/// The key is the message's id.
#[async_trait]
impl Delay for DelayQueue {
    async fn schedule(&self, key: &str, at: Micros, payload: &[u8]) -> Result<Scheduled, DelayError> {
        let sent = self.send(&DelayMessage::due(at, payload).id(key)).await?;
        Ok(if sent.is_new { Scheduled::New } else { Scheduled::Already { at: sent.at } })
    }

    async fn cancel(&self, key: &str) -> Result<Cancelled, DelayError> {
        self.cancel_in(key, key).await
    }
}
