//! Committing what is done and taking what is next, by one step.
use idempotent_mq::DelayError;

use super::queue::Closing;
use super::received::Taken;
use super::receiver::Taker;
use super::servers::delay_error;

/// What [`Taker::commit_and_take`] came to.
#[derive(Debug)]
#[non_exhaustive]
pub struct Next {
    /// Of each that was to be committed, in the same order. An error is that of a slot other than the one that was taken
    /// from: some may be done. Committed again, those are [`Lost`](Closing::Lost).
    pub committed: Result<Vec<Closing>, DelayError>,
    /// The next messages.
    pub taken: Vec<Taken>,
}

impl Taker {
    /// Commits what is `done`, and takes the next messages as [`take`](Self::take) does: by one step on the server where
    /// both lie in one slot, else side by side. Half the round trips of a loop that commits, and then takes. Where nothing
    /// is due, the commits do not wait for what is.
    ///
    /// ```no_run
    /// # async fn doc(queue: idempotent_redis::DelayQueue) -> Result<(), idempotent_mq::DelayError> {
    /// use idempotent_redis::{Back, Closing};
    ///
    /// let mut taker = queue.taker();
    /// let mut taken = taker.take(64).await?;
    /// loop {
    ///     // The failing case: what has nothing in it comes again.
    ///     let (done, failed): (Vec<_>, Vec<_>) = taken.into_iter().partition(|taken| !taken.body.is_empty());
    ///     for taken in &failed {
    ///         queue.rollback(taken, Back::Immediate, "nothing in it").await?;
    ///     }
    ///     let next = taker.commit_and_take(&done, 64).await?;
    ///     for (taken, closing) in done.iter().zip(next.committed?) {
    ///         if closing == Closing::Lost {
    ///             eprintln!("{} took too long: somebody else may have it, too", taken.id);
    ///         }
    ///     }
    ///     taken = next.taken;
    /// }
    /// # }
    /// ```
    ///
    /// # Errors
    /// By [`kind`](DelayError::kind): nothing was taken, and some may be committed. Committed again, those are
    /// [`Lost`](Closing::Lost).
    ///
    /// # Cancellation
    /// Some may be committed. What was taken meanwhile comes again when its time to be settled is over.
    pub async fn commit_and_take(&mut self, done: &[Taken], room: usize) -> Result<Next, DelayError> {
        let committed = match self.next_now() {
            Some(slot) => {
                let asked = self.queue().commit_and_take_from(slot, room, true, done).await;
                self.record_batch(slot, &asked);
                let batch = asked.map_err(|error| delay_error("committing and taking", error))?;
                if !batch.taken.is_empty() {
                    let committed = batch.committed.map_err(|error| delay_error("committing", error));
                    return Ok(Next { committed, taken: batch.taken });
                }
                batch.committed.map_err(|error| delay_error("committing", error))?
            }
            None => self.queue().commit_all(done).await?,
        };
        Ok(Next { committed: Ok(committed), taken: self.take(room).await? })
    }

    /// As [`commit_and_take`](Self::commit_and_take), of all slots, without waiting: nothing is taken, if nothing is due.
    ///
    /// # Errors
    /// As [`commit_and_take`](Self::commit_and_take).
    ///
    /// # Cancellation
    /// As [`commit_and_take`](Self::commit_and_take).
    pub async fn commit_and_take_now(&mut self, done: &[Taken], room: usize) -> Result<Next, DelayError> {
        if room == 0 {
            return Ok(Next { committed: Ok(self.queue().commit_all(done).await?), taken: Vec::new() });
        }
        let slot = self.next_in_turn();
        let asked = self.queue().commit_and_take_from(slot, room, false, done).await;
        let batch = asked.map_err(|error| delay_error("committing and taking", error))?;
        let committed = batch.committed.map_err(|error| delay_error("committing", error));
        let taken = self.more(batch.taken, room, 1).await?;
        match committed {
            Err(error) if taken.is_empty() => Err(error),
            committed => Ok(Next { committed, taken }),
        }
    }
}
