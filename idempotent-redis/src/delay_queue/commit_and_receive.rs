//! Committing deliveries and receiving the next ones in one call.
use idempotent_mq::DelayError;

use super::queue::SettleResult;
use super::received::DelayDelivery;
use super::receiver::DelayReceiver;
use super::servers::delay_error;

/// The result of [`DelayReceiver::commit_and_receive`].
#[derive(Debug)]
#[non_exhaustive]
pub struct CommitAndReceive {
    /// Results of the commits, in order. An error concerns slots other than the one that messages were taken from: some
    /// commits may be done. A repeated commit returns [`Lost`](SettleResult::Lost) for these.
    pub committed: Result<Vec<SettleResult>, DelayError>,
    /// The next messages.
    pub taken: Vec<DelayDelivery>,
}

impl DelayReceiver {
    /// Commits the deliveries in `done` and takes the next messages, as [`receive`](Self::receive) does.
    ///
    /// The commits and the take share one script call if they concern the same slot; otherwise the calls run
    /// concurrently. This saves half of the round trips of a loop with separate calls. If no message is due, the
    /// commits do not wait for one.
    ///
    /// ```no_run
    /// # async fn doc(queue: idempotent_redis::DelayQueue) -> Result<(), idempotent_mq::DelayError> {
    /// use idempotent_redis::{RetryDelay, SettleResult};
    ///
    /// let mut receiver = queue.receiver();
    /// let mut taken = receiver.receive(64).await?;
    /// loop {
    ///     // Failure: empty messages are redelivered.
    ///     let (done, failed): (Vec<_>, Vec<_>) = taken.into_iter().partition(|taken| !taken.body.is_empty());
    ///     for taken in &failed {
    ///         queue.rollback(taken, RetryDelay::Immediate, "empty message").await?;
    ///     }
    ///     let next = receiver.commit_and_receive(&done, 64).await?;
    ///     for (taken, closing) in done.iter().zip(next.committed?) {
    ///         if closing == SettleResult::Lost {
    ///             eprintln!("{} took too long: another consumer may have received it as well", taken.id);
    ///         }
    ///     }
    ///     taken = next.taken;
    /// }
    /// # }
    /// ```
    ///
    /// # Errors
    /// By [`kind`](DelayError::kind). No message was taken, and some commits may be done. A repeated commit returns
    /// [`Lost`](SettleResult::Lost) for these.
    ///
    /// # Cancellation
    /// Some commits may be done. Messages that were taken are redelivered after the visibility timeout.
    pub async fn commit_and_receive(
        &mut self,
        done: &[DelayDelivery],
        room: usize,
    ) -> Result<CommitAndReceive, DelayError> {
        let committed = match self.next_now() {
            Some(slot) => {
                let asked = self.queue().commit_and_take_from(slot, room, true, done).await;
                self.record_batch(slot, &asked);
                let batch = asked.map_err(|error| delay_error("committing and taking", error))?;
                if !batch.taken.is_empty() {
                    let committed = batch.committed.map_err(|error| delay_error("committing", error));
                    return Ok(CommitAndReceive { committed, taken: batch.taken });
                }
                batch.committed.map_err(|error| delay_error("committing", error))?
            }
            None => self.queue().commit_all(done).await?,
        };
        Ok(CommitAndReceive { committed: Ok(committed), taken: self.receive(room).await? })
    }

    /// Commits the deliveries in `done` and takes due messages from all slots without waiting. The result has no
    /// messages if none is due.
    ///
    /// # Errors
    /// The same as [`commit_and_receive`](Self::commit_and_receive).
    ///
    /// # Cancellation
    /// The same as [`commit_and_receive`](Self::commit_and_receive).
    pub async fn commit_and_receive_now(
        &mut self,
        done: &[DelayDelivery],
        room: usize,
    ) -> Result<CommitAndReceive, DelayError> {
        if room == 0 {
            return Ok(CommitAndReceive { committed: Ok(self.queue().commit_all(done).await?), taken: Vec::new() });
        }
        let slot = self.next_in_turn();
        let asked = self.queue().commit_and_take_from(slot, room, false, done).await;
        let batch = asked.map_err(|error| delay_error("committing and taking", error))?;
        let committed = batch.committed.map_err(|error| delay_error("committing", error));
        let taken = self.more(batch.taken, room, 1).await?;
        match committed {
            Err(error) if taken.is_empty() => Err(error),
            committed => Ok(CommitAndReceive { committed, taken }),
        }
    }
}
