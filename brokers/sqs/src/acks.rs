//! Acknowledgements, which share requests.
use aws_sdk_sqs::types::BatchResultErrorEntry;
use idempotent_mq::SourceError;
use tokio::sync::{mpsc, oneshot};

use crate::error::{Failure, transient};
use crate::queue::{BATCH, Queue, index};

const DOING: &str = "acknowledging";

/// The queue of acknowledgements. A task sends up to ten in one request, while later ones wait for the next request.
#[derive(Debug)]
pub(crate) struct AckQueue(mpsc::UnboundedSender<PendingAck>);

#[derive(Debug)]
struct PendingAck {
    receipt: String,
    answer: oneshot::Sender<Result<(), SourceError>>,
}

impl AckQueue {
    /// Starts the task, which ends with the queue of acknowledgements.
    ///
    /// # Panics
    /// Panics outside of a Tokio runtime.
    pub(crate) fn start(queue: Queue) -> Self {
        let (sender, waiting) = mpsc::unbounded_channel();
        tokio::spawn(run(waiting, queue));
        Self(sender)
    }

    /// Deletes a message.
    ///
    /// # Errors
    /// - `Gone`: SQS does not accept the receipt handle any more.
    /// - `Transient`, `Fatal`: the request or the entry of this message failed.
    ///
    /// # Cancellation
    /// The message may be deleted.
    pub(crate) async fn ack(&self, receipt: &str) -> Result<(), SourceError> {
        let (answer, answered) = oneshot::channel();
        let ended = || transient(DOING, "the runtime is shutting down");
        self.0.send(PendingAck { receipt: receipt.to_owned(), answer }).map_err(|_| ended())?;
        answered.await.map_err(|_| ended())?
    }
}

async fn run(mut waiting: mpsc::UnboundedReceiver<PendingAck>, queue: Queue) {
    let mut batch = Vec::new();
    while waiting.recv_many(&mut batch, BATCH).await > 0 {
        // A caller that has stopped waiting may repeat its call, and a batch must not contain a receipt twice.
        batch.retain(|ack: &PendingAck| !ack.answer.is_closed());
        if batch.is_empty() {
            continue;
        }
        let receipts = batch.iter().map(|ack: &PendingAck| &*ack.receipt);
        let failed = queue.delete_batch(receipts, DOING).await;
        for (number, ack) in batch.drain(..).enumerate() {
            // A caller that has stopped waiting is answered by the next delivery.
            let _ = ack.answer.send(answer(&failed, number));
        }
    }
}

/// Returns the answer to the acknowledgement with this index in its batch.
fn answer(failed: &Result<Vec<BatchResultErrorEntry>, Failure>, number: usize) -> Result<(), SourceError> {
    let failed = failed.as_ref().map_err(Failure::source)?;
    match failed.iter().find(|entry| index(entry.id()) == Some(number)) {
        Some(entry) => Err(Failure::of_entry(DOING, entry).source()),
        None => Ok(()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_task_ends_with_its_queue() {
        let client = crate::client("sqs://eu-west-1?endpoint=http://127.0.0.1:1").unwrap();
        let (sender, waiting) = mpsc::unbounded_channel();
        drop(sender);
        run(waiting, Queue::new(client, "http://127.0.0.1:1/1/orders", "orders")).await;
    }

    #[test]
    fn only_the_failed_entry_of_a_batch_is_an_error() {
        let entry = BatchResultErrorEntry::builder().id("1").code("InternalError").sender_fault(false);
        let failed = Ok(vec![entry.build().unwrap()]);
        let answers = [0, 1, 2].map(|number| answer(&failed, number).is_ok());
        assert_eq!(answers, [true, false, true]);
        assert!(answer(&Err(Failure::silent(DOING, 5)), 0).is_err());
    }
}
