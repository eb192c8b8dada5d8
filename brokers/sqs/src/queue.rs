//! The requests to one queue.
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use aws_sdk_sqs::Client;
use aws_sdk_sqs::config::http::HttpResponse;
use aws_sdk_sqs::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_sqs::types::builders::SendMessageBatchRequestEntryBuilder;
use aws_sdk_sqs::types::{
    BatchResultErrorEntry, ChangeMessageVisibilityBatchRequestEntry, DeleteMessageBatchRequestEntry, Message,
    MessageSystemAttributeName, SendMessageBatchRequestEntry,
};
use tokio::time::timeout;

use crate::carrier::{Attributes, size};
use crate::error::Failure;
use crate::fifo::SUFFIX;

/// The maximum number of entries in a batch, and of messages in a response.
pub(crate) const BATCH: usize = 10;
/// The largest message that SQS accepts. A queue may have a smaller limit.
const LARGEST: usize = 1 << 20;
/// The time limit for an answer, in seconds. A long poll has its own time before.
const ANSWER: u64 = 5;

/// A queue of a client.
#[derive(Clone)]
pub(crate) struct Queue {
    client: Client,
    url: Arc<str>,
    /// The name, for positions and errors.
    pub(crate) name: Arc<str>,
    /// The largest message: the body, and the names, types and values of the attributes.
    pub(crate) largest: usize,
}

/// The group and the deduplication id of a message in a FIFO queue.
#[derive(Clone, Debug)]
pub(crate) struct FifoIds {
    pub(crate) group: String,
    pub(crate) deduplication: String,
}

/// A message that is sent.
#[derive(Clone, Debug)]
pub(crate) struct NewMessage {
    pub(crate) body: String,
    pub(crate) attributes: Attributes,
    pub(crate) fifo: Option<FifoIds>,
    pub(crate) delay: Option<i32>,
}

impl NewMessage {
    /// Returns the size as SQS counts it.
    pub(crate) fn size(&self) -> usize {
        size(&self.body, &self.attributes)
    }
}

impl Queue {
    pub(crate) fn new(client: Client, url: &str, name: &str) -> Self {
        Self { client, url: url.into(), name: name.into(), largest: LARGEST }
    }

    pub(crate) fn is_fifo(&self) -> bool {
        self.name.ends_with(SUFFIX)
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Receives at most this number of messages, after at most this wait.
    ///
    /// # Cancellation
    /// SQS may have hidden messages until their visibility timeout ends.
    pub(crate) async fn receive(&self, most: usize, wait: u64, visibility: i32) -> Result<Vec<Message>, Failure> {
        let receive = self.client.receive_message().queue_url(&*self.url);
        let receive = receive
            .max_number_of_messages(i32::try_from(most.min(BATCH)).unwrap_or(1))
            .wait_time_seconds(i32::try_from(wait).unwrap_or(0))
            .visibility_timeout(visibility)
            .message_attribute_names("All")
            .message_system_attribute_names(MessageSystemAttributeName::All);
        let received = answered("receiving messages", wait + ANSWER, receive.send()).await?;
        Ok(received.messages.unwrap_or_default())
    }

    /// Changes the visibility timeout of a message, counted from now in seconds.
    pub(crate) async fn change(&self, receipt: &str, seconds: i32, doing: &str) -> Result<(), Failure> {
        let change = self.client.change_message_visibility().queue_url(&*self.url);
        let change = change.receipt_handle(receipt).visibility_timeout(seconds);
        answered(doing, ANSWER, change.send()).await.map(drop)
    }

    /// Changes the visibility timeouts of at most ten messages. Returns the failed entries.
    pub(crate) async fn change_batch(
        &self,
        entries: impl Iterator<Item = (&str, i32)>,
        doing: &str,
    ) -> Result<Vec<BatchResultErrorEntry>, Failure> {
        let entry = |(number, (receipt, seconds)): (usize, (&str, i32))| {
            let entry = ChangeMessageVisibilityBatchRequestEntry::builder().id(number.to_string());
            entry.receipt_handle(receipt).visibility_timeout(seconds).build().ok()
        };
        let entries = entries.enumerate().map(entry).collect();
        let change = self.client.change_message_visibility_batch().queue_url(&*self.url).set_entries(entries);
        Ok(answered(doing, ANSWER, change.send()).await?.failed)
    }

    /// Deletes at most ten messages. Returns the failed entries, whose ids are the indexes of the receipts.
    pub(crate) async fn delete_batch(
        &self,
        receipts: impl Iterator<Item = &str>,
        doing: &str,
    ) -> Result<Vec<BatchResultErrorEntry>, Failure> {
        let entry = |(number, receipt): (usize, &str)| {
            DeleteMessageBatchRequestEntry::builder().id(number.to_string()).receipt_handle(receipt).build().ok()
        };
        let entries = receipts.enumerate().map(entry).collect();
        let delete = self.client.delete_message_batch().queue_url(&*self.url).set_entries(entries);
        Ok(answered(doing, ANSWER, delete.send()).await?.failed)
    }

    /// Deletes a message.
    pub(crate) async fn delete(&self, receipt: &str, doing: &str) -> Result<(), Failure> {
        let delete = self.client.delete_message().queue_url(&*self.url).receipt_handle(receipt);
        answered(doing, ANSWER, delete.send()).await.map(drop)
    }

    /// Sends a message. Returns the id that SQS has assigned.
    pub(crate) async fn send(&self, message: NewMessage, doing: &str) -> Result<Option<String>, Failure> {
        let (group, deduplication) = message.fifo.map(|ids| (ids.group, ids.deduplication)).unzip();
        let send = self.client.send_message().queue_url(&*self.url).message_body(message.body);
        let send = send.set_message_attributes(Some(message.attributes)).set_delay_seconds(message.delay);
        let send = send.set_message_group_id(group).set_message_deduplication_id(deduplication);
        Ok(answered(doing, ANSWER, send.send()).await?.message_id)
    }

    /// Sends at most ten messages. Returns the ids that SQS has assigned, or the failures, in the order of the messages.
    pub(crate) async fn send_batch(
        &self,
        messages: Vec<NewMessage>,
        doing: &str,
    ) -> Result<Vec<Result<Option<String>, Failure>>, Failure> {
        let number = messages.len();
        let entries = messages.into_iter().enumerate().map(|(number, message)| entry(message).id(number.to_string()));
        let entries: Option<Vec<SendMessageBatchRequestEntry>> = entries.map(|entry| entry.build().ok()).collect();
        let send = self.client.send_message_batch().queue_url(&*self.url).set_entries(entries);
        let answer = answered(doing, ANSWER, send.send()).await?;
        let mut results = vec![Err(Failure::silent(doing, ANSWER)); number];
        for sent in answer.successful {
            set(&mut results, &sent.id, Ok(Some(sent.message_id)));
        }
        for failed in answer.failed {
            set(&mut results, &failed.id, Err(Failure::of_entry(doing, &failed)));
        }
        Ok(results)
    }
}

fn entry(message: NewMessage) -> SendMessageBatchRequestEntryBuilder {
    let (group, deduplication) = message.fifo.map(|ids| (ids.group, ids.deduplication)).unzip();
    SendMessageBatchRequestEntry::builder()
        .message_body(message.body)
        .set_message_attributes(Some(message.attributes))
        .set_delay_seconds(message.delay)
        .set_message_group_id(group)
        .set_message_deduplication_id(deduplication)
}

/// Sets the result with this index, if there is one.
fn set<T>(results: &mut [T], id: &str, result: T) {
    if let Some(place) = index(id).and_then(|at| results.get_mut(at)) {
        *place = result;
    }
}

/// Returns the index of an entry of a batch.
pub(crate) fn index(id: &str) -> Option<usize> {
    id.parse().ok()
}

/// Waits for an answer, for at most this number of seconds.
pub(crate) async fn answered<T, E>(
    doing: &str,
    seconds: u64,
    request: impl Future<Output = Result<T, SdkError<E, HttpResponse>>>,
) -> Result<T, Failure>
where
    E: std::error::Error + ProvideErrorMetadata + 'static,
{
    match timeout(Duration::from_secs(seconds), request).await {
        Ok(answer) => answer.map_err(|error| Failure::of(doing, &error)),
        Err(_) => Err(Failure::silent(doing, seconds)),
    }
}

/// Shows the name only.
impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Queue").field(&self.name).finish()
    }
}
