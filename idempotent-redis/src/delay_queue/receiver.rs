//! Receiving messages, waiting for them, and committing in the same call.
use std::fmt;
use std::pin::Pin;
use std::time::Duration;

use futures_util::future::select_all;
use idempotent_core::StoreError;
use idempotent_mq::DelayError;
use tokio::sync::futures::OwnedNotified;
use tokio::time::Instant;

use super::queue::{DelayQueue, SettleResult};
use super::received::DelayDelivery;
use super::replies::delay_error;
use super::slot_calls::SlotBatch;
use crate::connection::notifications::WaitRegistration;

/// A receiver for the messages of a topic.
///
/// Waiting causes no commands: the receiver sleeps until the next message is due, and is woken if an earlier one is
/// sent. All receivers of a process share one connection for these notifications.
pub struct DelayReceiver {
    queue: DelayQueue,
    slots: Vec<SlotWait>,
    /// Slot that is polled next. Slots are polled in turn.
    turn: usize,
}

struct SlotWait {
    registration: WaitRegistration,
    /// Completes when a message is due earlier than expected. Replaced before each poll.
    notified: Pin<Box<OwnedNotified>>,
    next: Instant,
}

impl SlotWait {
    fn new(registration: WaitRegistration) -> Self {
        let notified = listen(&registration);
        Self { registration, notified, next: Instant::now() }
    }
}

fn listen(registration: &WaitRegistration) -> Pin<Box<OwnedNotified>> {
    let mut notified = Box::pin(registration.notify.clone().notified_owned());
    notified.as_mut().enable();
    notified
}

/// Minimum poll frequency of a slot. If the server's clock is set forward, messages become due without a notification.
const LISTENING_POLL: Duration = Duration::from_secs(5);
/// Minimum poll frequency without notifications.
const SILENT_POLL: Duration = Duration::from_millis(250);

impl DelayQueue {
    /// Returns a receiver for the messages of this topic.
    pub fn receiver(&self) -> DelayReceiver {
        DelayReceiver::new(self.clone())
    }
}

impl DelayReceiver {
    pub(crate) fn new(queue: DelayQueue) -> Self {
        let hub = &queue.0.servers.hub;
        let slots = queue.0.topic.slots.iter().map(|keys| SlotWait::new(hub.register(keys.slot()))).collect();
        Self { queue, slots, turn: 0 }
    }

    /// Waits for due messages and takes up to `room` of them (at most 256) from one slot.
    ///
    /// # Errors
    /// By [`kind`](DelayError::kind).
    ///
    /// # Cancellation
    /// Messages that were already taken are redelivered after the visibility timeout.
    pub async fn receive(&mut self, room: usize) -> Result<Vec<DelayDelivery>, DelayError> {
        loop {
            let slot = self.next().await;
            let asked = self.queue.take_from(slot, room, true, &[]).await;
            self.record_batch(slot, &asked);
            let batch = asked.map_err(|error| delay_error("taking", error))?;
            if !batch.taken.is_empty() {
                return Ok(batch.taken);
            }
        }
    }

    /// Takes up to `room` due messages (at most 256) from all slots, without waiting. The result may be empty.
    ///
    /// # Errors
    /// By [`kind`](DelayError::kind).
    ///
    /// # Cancellation
    /// The same as [`receive`](Self::receive).
    pub async fn receive_now(&mut self, room: usize) -> Result<Vec<DelayDelivery>, DelayError> {
        self.more(Vec::new(), room, 0).await
    }

    pub(crate) fn queue(&self) -> &DelayQueue {
        &self.queue
    }

    /// Adds due messages from the slots that were not polled yet. An error is ignored if there are messages, because
    /// the next poll reports it.
    pub(crate) async fn more(
        &mut self,
        mut taken: Vec<DelayDelivery>,
        room: usize,
        asked: usize,
    ) -> Result<Vec<DelayDelivery>, DelayError> {
        let room = room.min(super::slot_calls::MAX_BATCH);
        for _ in asked..self.slots.len() {
            if taken.len() >= room {
                break;
            }
            let slot = self.next_in_turn();
            match self.queue.take_from(slot, room - taken.len(), false, &[]).await {
                Ok(batch) => taken.extend(batch.taken),
                Err(error) if taken.is_empty() => return Err(delay_error("taking", error)),
                Err(_) => break,
            }
        }
        Ok(taken)
    }

    pub(crate) fn next_in_turn(&mut self) -> u16 {
        let slot = self.turn % self.slots.len();
        self.turn = slot + 1;
        u16::try_from(slot).unwrap_or_default()
    }

    /// Waits until a slot should be polled, and returns that slot. Cancel-safe.
    pub(crate) async fn next(&mut self) -> u16 {
        loop {
            if let Some(slot) = self.next_now() {
                return slot;
            }
            let first = self.slots.iter().map(|slot| slot.next).min().unwrap_or_else(Instant::now);
            let notifications = select_all(self.slots.iter_mut().map(|slot| slot.notified.as_mut()));
            tokio::select! {
                ((), index, _) = notifications => self.wake_slot(index),
                () = tokio::time::sleep_until(first) => {}
            }
        }
    }

    /// Returns the next slot that should be polled now, if any.
    pub(crate) fn next_now(&mut self) -> Option<u16> {
        let now = Instant::now();
        for _ in 0..self.slots.len() {
            let slot = self.next_in_turn();
            if self.slots[usize::from(slot)].next <= now {
                return Some(slot);
            }
        }
        None
    }

    fn wake_slot(&mut self, slot: usize) {
        let slot = &mut self.slots[slot];
        // Registered before the poll, so that later notifications are not lost.
        slot.notified = listen(&slot.registration);
        slot.next = Instant::now();
    }

    /// Schedules the next poll of a slot by the result of the last one.
    pub(crate) fn record_batch(&mut self, slot: u16, asked: &Result<SlotBatch, StoreError>) {
        let sleep = if self.queue.is_listening() { LISTENING_POLL } else { SILENT_POLL };
        let again = match asked {
            Ok(batch) => batch.again.map_or(sleep, |again| again.min(sleep)),
            Err(_) => Duration::ZERO,
        };
        self.slots[usize::from(slot)].next = Instant::now() + again;
    }
}

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

impl fmt::Debug for DelayReceiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DelayReceiver").field("queue", &self.queue).finish_non_exhaustive()
    }
}
