//! Taking messages, and waiting for them.
use std::fmt;
use std::pin::Pin;
use std::time::Duration;

use futures_util::future::select_all;
use idempotent_core::StoreError;
use idempotent_mq::DelayError;
use tokio::sync::futures::OwnedNotified;
use tokio::time::Instant;

use super::queue::DelayQueue;
use super::received::Taken;
use super::servers::delay_error;
use super::slot_calls::SlotBatch;
use crate::connection::notifications::WaitRegistration;

/// Takes messages of a topic. Waiting for one costs nothing: a taker sleeps until the next is due, which the last answer
/// told, and is woken where an earlier one is sent. All takers of a process hear of it by the one connection they share.
pub struct Taker {
    queue: DelayQueue,
    slots: Vec<SlotWait>,
    /// Asked first next time: slots take turns.
    turn: usize,
}

struct SlotWait {
    registration: WaitRegistration,
    /// Rings when something is due earlier than was told; a new one before each question.
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

/// A slot is asked this often at least: a server's clock that is set forward makes messages due that nobody tells of.
const LISTENING_POLL: Duration = Duration::from_secs(5);
/// Likewise where the server does not let us listen.
const SILENT_POLL: Duration = Duration::from_millis(250);

impl DelayQueue {
    /// To take messages with.
    pub fn taker(&self) -> Taker {
        Taker::new(self.clone())
    }
}

impl Taker {
    pub(crate) fn new(queue: DelayQueue) -> Self {
        let hub = &queue.0.servers.hub;
        let slots = queue.0.topic.slots.iter().map(|keys| SlotWait::new(hub.register(keys.slot()))).collect();
        Self { queue, slots, turn: 0 }
    }

    /// The next messages that are due, at least one and at most `room` (no more than 256), of one slot. Waits until
    /// there is one.
    ///
    /// # Errors
    /// By [`kind`](DelayError::kind).
    ///
    /// # Cancellation
    /// What was taken meanwhile comes again when its time to be settled is over.
    pub async fn take(&mut self, room: usize) -> Result<Vec<Taken>, DelayError> {
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

    /// What is due now, at most `room` (no more than 256), of all slots; nothing, if nothing is.
    ///
    /// # Errors
    /// By [`kind`](DelayError::kind).
    ///
    /// # Cancellation
    /// As [`take`](Self::take).
    pub async fn take_now(&mut self, room: usize) -> Result<Vec<Taken>, DelayError> {
        self.more(Vec::new(), room, 0).await
    }

    pub(crate) fn queue(&self) -> &DelayQueue {
        &self.queue
    }

    /// Adds what is due in slots that were not asked yet. What is there already is not lost to an error: that is told by
    /// the next question.
    pub(crate) async fn more(
        &mut self,
        mut taken: Vec<Taken>,
        room: usize,
        asked: usize,
    ) -> Result<Vec<Taken>, DelayError> {
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

    /// The slot whose turn it is.
    pub(crate) fn next_in_turn(&mut self) -> u16 {
        let slot = self.turn % self.slots.len();
        self.turn = slot + 1;
        u16::try_from(slot).unwrap_or_default()
    }

    /// The next slot that is worth asking, once there is one. Dropped, nothing is lost.
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

    /// The next slot that is worth asking.
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
        // Before it is asked: what is told from now on is heard.
        slot.notified = listen(&slot.registration);
        slot.next = Instant::now();
    }

    /// What a question came to.
    pub(crate) fn record_batch(&mut self, slot: u16, asked: &Result<SlotBatch, StoreError>) {
        let sleep = if self.queue.is_listening() { LISTENING_POLL } else { SILENT_POLL };
        let again = match asked {
            Ok(batch) => batch.again.map_or(sleep, |again| again.min(sleep)),
            Err(_) => Duration::ZERO,
        };
        self.slots[usize::from(slot)].next = Instant::now() + again;
    }
}

impl fmt::Debug for Taker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Taker").field("queue", &self.queue).finish_non_exhaustive()
    }
}
