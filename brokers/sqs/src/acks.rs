//! Acknowledgements, which share requests.
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
            let answer = match &failed {
                Ok(failed) => match failed.iter().find(|entry| index(entry.id()) == Some(number)) {
                    Some(entry) => Err(Failure::of_entry(DOING, entry).source()),
                    None => Ok(()),
                },
                Err(failure) => Err(failure.source()),
            };
            // A caller that has stopped waiting is answered by the next delivery.
            let _ = ack.answer.send(answer);
        }
    }
}
