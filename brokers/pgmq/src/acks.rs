//! Acknowledgements, which share statements.
use std::sync::Arc;

use idempotent_mq::SourceError;
use sqlx::{AssertSqlSafe, Row};
use tokio::sync::{mpsc, oneshot};

use crate::PgmqTag;
use crate::connections::Connections;
use crate::error::{Failure, QueryError, gone, transient};

/// The maximum number of acknowledgements in one statement.
const MOST: usize = 500;
const DOING: &str = "acknowledging";

/// The queue of acknowledgements. A task sends all that wait in one statement, and those that arrive in between in the next one.
#[derive(Debug)]
pub(crate) struct AckQueue(mpsc::UnboundedSender<PendingAck>);

struct PendingAck {
    tag: PgmqTag,
    answer: oneshot::Sender<Result<(), SourceError>>,
}

impl AckQueue {
    /// Starts the task, which ends with the queue.
    ///
    /// # Panics
    /// Panics outside of a Tokio runtime.
    pub(crate) fn start(connections: Arc<Connections>, statement: Arc<str>) -> Self {
        let (sender, waiting) = mpsc::unbounded_channel();
        tokio::spawn(run(waiting, connections, statement));
        Self(sender)
    }

    /// Acknowledges a message. A message that is gone from the queue is acknowledged already.
    ///
    /// # Errors
    /// - `Gone`: another consumer holds the message.
    /// - `Transient`, `Fatal`: the statement failed.
    ///
    /// # Cancellation
    /// The message may be acknowledged.
    pub(crate) async fn ack(&self, tag: PgmqTag) -> Result<(), SourceError> {
        let (answer, answered) = oneshot::channel();
        let ended = || transient(DOING, "the runtime is shutting down");
        self.0.send(PendingAck { tag, answer }).map_err(|_| ended())?;
        answered.await.map_err(|_| ended())?
    }
}

async fn run(mut waiting: mpsc::UnboundedReceiver<PendingAck>, connections: Arc<Connections>, statement: Arc<str>) {
    let mut batch = Vec::new();
    while waiting.recv_many(&mut batch, MOST).await > 0 {
        let tags: Vec<PgmqTag> = batch.iter().map(|ack: &PendingAck| ack.tag).collect();
        let refused = delete(&connections, &statement, &tags).await;
        for ack in batch.drain(..) {
            let answer = match &refused {
                Ok(refused) if refused.contains(&ack.tag.id) => Err(gone(DOING)),
                Ok(_) => Ok(()),
                Err(failure) => Err(failure.source()),
            };
            // A caller that has stopped waiting is answered by the next delivery.
            let _ = ack.answer.send(answer);
        }
    }
}

/// Deletes messages, and returns the ids of those that another consumer holds.
async fn delete(connections: &Connections, statement: &Arc<str>, tags: &[PgmqTag]) -> Result<Vec<i64>, Failure> {
    let (ids, reads, settled) = columns(tags.iter());
    let delete = sqlx::query(AssertSqlSafe(statement.clone())).bind(ids).bind(reads).bind(settled);
    let rows = connections.rows(delete).await.map_err(|error| Failure::of(DOING, &error))?;
    let refused: Result<_, sqlx::Error> = rows.iter().map(|row| row.try_get("id")).collect();
    refused.map_err(|error| Failure::of(DOING, &QueryError::Failed(error)))
}

/// Returns the arguments of a statement for several messages, in the order of their ids.
pub(crate) fn columns<'a>(tags: impl Iterator<Item = &'a PgmqTag>) -> (Vec<i64>, Vec<i32>, Vec<i32>) {
    let mut tags: Vec<_> = tags.copied().collect();
    // Two statements that lock rows in one order do not wait for each other in a circle.
    tags.sort_unstable_by_key(|tag| tag.id);
    let mut columns = (Vec::new(), Vec::new(), Vec::new());
    for PgmqTag { id, reads, settled, .. } in tags {
        columns.0.push(id);
        columns.1.push(reads);
        columns.2.push(settled);
    }
    columns
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_task_ends_with_its_queue() {
        let (sender, waiting) = mpsc::unbounded_channel();
        drop(sender);
        let connections = Connections::new(&"postgres://127.0.0.1:1/none".into()).unwrap();
        run(waiting, Arc::new(connections), "SELECT 1".into()).await;
    }
}
