//! Publishing to a queue in memory.
use std::time::Duration;

use async_trait::async_trait;

use super::MemoryQueue;
use crate::{Delivery, OutboundMessage, Position, Publish, PublishError, PublishErrorKind, Published};

/// Accepts messages whose topic is the name of the queue, and refuses all others.
#[async_trait]
impl Publish for MemoryQueue {
    async fn publish(&self, messages: &[OutboundMessage]) -> Vec<Result<Published, PublishError>> {
        messages.iter().map(|message| self.accept(message)).collect()
    }

    fn delays(&self) -> bool {
        true
    }
}

impl MemoryQueue {
    fn accept(&self, message: &OutboundMessage) -> Result<Published, PublishError> {
        if *message.topic != *self.shared.name {
            let text = format!("the topic is `{}`, and the queue in memory is `{}`", message.topic, self.shared.name);
            return Err(PublishError::new(PublishErrorKind::Refused, text));
        }
        let wait = message.deliver_at.map_or(Duration::ZERO, |time| time - self.clock.wall());
        let mut position = Position::of(self.shared.name.clone()).partition(0);
        self.add(wait, |at, _| {
            position = at.clone();
            Delivery {
                id: Some(message.id.clone()),
                business_key: message.business_key.clone(),
                headers: message.headers.clone(),
                ..Delivery::new(at, message.body.clone())
            }
        });
        Ok(Published::at(position))
    }
}
