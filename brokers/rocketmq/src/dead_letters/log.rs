//! The topic of the dead letters as a log: its queues, its messages, and the committed offset of a group.
use std::fmt;

use async_trait::async_trait;
use idempotent_mq::SourceError;
use rocketmq_model::common::message::message_queue::MessageQueue;

use crate::producer::PreparedMessage;
use crate::properties::Properties;
use crate::queue_position::QueuePosition;

/// Access to the queues of one topic, on behalf of one group.
#[async_trait]
pub(crate) trait LetterLog: Send + Sync {
    /// Returns all queues.
    async fn queues(&self) -> Result<Vec<MessageQueue>, SourceError>;

    /// Returns the offset of the first message that the queue still has, and the offset after its last one.
    async fn bounds(&self, queue: &MessageQueue) -> Result<(u64, u64), SourceError>;

    /// Returns the committed offset of the group, or 0 if there is none.
    async fn committed(&self, queue: &MessageQueue) -> Result<u64, SourceError>;

    /// Returns the first messages at this offset or later. At least one message is returned, or a larger offset.
    async fn read(&self, queue: &MessageQueue, from: u64) -> Result<LetterBatch, SourceError>;

    /// Sends a message to any topic and returns when the broker has stored the message.
    async fn send(&self, message: PreparedMessage) -> Result<(), SourceError>;

    /// Commits an offset of the group and returns when the broker has it.
    async fn commit(&self, queue: &MessageQueue, offset: u64) -> Result<(), SourceError>;

    /// Locks the queue for this session, or extends its lock. Returns false while another session of the group has the lock.
    async fn lock(&self, queue: &MessageQueue) -> Result<bool, SourceError>;

    /// Ends the lock of this session. A lock that cannot be ended expires.
    async fn unlock(&self, queue: &MessageQueue);
}

/// Consecutive messages of a queue, and the offset after them.
#[derive(Debug)]
pub(crate) struct LetterBatch {
    pub(crate) letters: Vec<StoredLetter>,
    pub(crate) next: u64,
}

/// A message in the topic of the dead letters.
#[derive(Clone)]
pub(crate) struct StoredLetter {
    pub(crate) position: QueuePosition,
    /// The time at which the broker stored the message, in ms since 1970.
    pub(crate) stored_at: i64,
    /// The properties, without those that the broker sets for one delivery.
    pub(crate) properties: Properties,
    pub(crate) flag: i32,
    /// The decompressed body, or the stored bytes if they cannot be decompressed.
    pub(crate) body: Vec<u8>,
}

impl StoredLetter {
    pub(crate) fn offset(&self) -> u64 {
        self.position.offset()
    }

    /// Returns a copy for this topic, with unchanged body and properties.
    pub(crate) fn copy_to(&self, topic: &str) -> PreparedMessage {
        PreparedMessage {
            topic: topic.to_owned(),
            properties: self.properties.clone(),
            flag: self.flag,
            level: 0,
            body: self.body.clone(),
        }
    }
}

/// Shows no payload.
impl fmt::Debug for StoredLetter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoredLetter").field("position", &self.position).finish_non_exhaustive()
    }
}
