//! Long polls, which continue when a receive is dropped.
use std::sync::Arc;

use aws_sdk_sqs::types::Message;
use idempotent_mq::SourceError;
use tokio::sync::oneshot;

use crate::error::transient;
use crate::queue::{BATCH, Queue};

/// The settings of long polls.
#[derive(Debug)]
pub(crate) struct PollSettings {
    pub(crate) queue: Queue,
    /// The longest wait in seconds.
    pub(crate) wait: u64,
    /// The first visibility timeout in seconds.
    pub(crate) visibility: i32,
}

type Answer = Result<Vec<Message>, SourceError>;

/// A long poll that runs. When the value is dropped, the poll continues, because SQS may already have hidden messages for it. The
/// poll then returns its messages to the queue.
#[derive(Debug)]
pub(crate) struct Poll(oneshot::Receiver<Answer>);

impl Poll {
    /// Starts a poll for at most this number of messages.
    ///
    /// # Panics
    /// Panics outside of a Tokio runtime.
    pub(crate) fn start(settings: Arc<PollSettings>, most: usize) -> Self {
        let (answer, answered) = oneshot::channel();
        tokio::spawn(run(settings, most, answer));
        Self(answered)
    }

    /// Waits for the messages.
    ///
    /// # Cancellation
    /// A later call returns the messages.
    pub(crate) async fn messages(&mut self) -> Answer {
        match (&mut self.0).await {
            Ok(answer) => answer,
            Err(_) => Err(transient("receiving messages", "the runtime is shutting down")),
        }
    }

    /// Returns the messages if they have arrived. If not, the poll returns them to the queue itself.
    pub(crate) fn close(mut self) -> Vec<Message> {
        self.0.close();
        self.0.try_recv().ok().and_then(Result::ok).unwrap_or_default()
    }
}

async fn run(settings: Arc<PollSettings>, most: usize, answer: oneshot::Sender<Answer>) {
    let received = settings.queue.receive(most, settings.wait, settings.visibility).await;
    if let Err(Ok(messages)) = answer.send(received.map_err(|failure| failure.source())) {
        give_back(&settings.queue, messages.iter().filter_map(Message::receipt_handle)).await;
    }
}

/// Returns messages to the queue by their receipt handles. After an error, SQS delivers them again after their visibility timeout.
pub(crate) async fn give_back(queue: &Queue, receipts: impl Iterator<Item = &str>) {
    let receipts: Vec<_> = receipts.map(|receipt| (receipt, 0)).collect();
    for chunk in receipts.chunks(BATCH) {
        if let Err(failure) = queue.change_batch(chunk.iter().copied(), "returning messages").await {
            let error = failure.source();
            tracing::debug!(target: "idempotent", %error, "sqs: messages are redelivered later");
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_poll_that_is_closed_has_its_messages_or_lets_its_task_return_them() {
        let (answer, answered) = oneshot::channel();
        answer.send(Ok(vec![Message::builder().build()])).unwrap();
        assert_eq!(Poll(answered).close().len(), 1);
        let (answer, answered) = oneshot::channel();
        assert!(Poll(answered).close().is_empty());
        assert!(answer.send(Ok(vec![Message::builder().build()])).is_err());
    }
}
