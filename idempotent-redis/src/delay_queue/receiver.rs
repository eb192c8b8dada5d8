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
use super::slot_calls::Batch;
use crate::connection::notifications::Waiting;

/// Takes messages of a topic. Waiting for one costs nothing: a taker sleeps until the next is due, which the last answer
/// told, and is woken where an earlier one is sent. All takers of a process hear of it by the one connection they share.
pub struct Taker {
    queue: DelayQueue,
    slots: Vec<Slot>,
    /// Asked first next time: slots take turns.
    turn: usize,
}

struct Slot {
    waiting: Waiting,
    /// Rings when something is due earlier than was told; a new one before each question.
    bell: Pin<Box<OwnedNotified>>,
    next: Instant,
}

impl Slot {
    fn new(waiting: Waiting) -> Self {
        let bell = listening(&waiting);
        Self { waiting, bell, next: Instant::now() }
    }
}

fn listening(waiting: &Waiting) -> Pin<Box<OwnedNotified>> {
    let mut bell = Box::pin(waiting.bell.clone().notified_owned());
    bell.as_mut().enable();
    bell
}

/// A slot is asked this often at least: a server's clock that is set forward makes messages due that nobody tells of.
const SEEN_TO: Duration = Duration::from_secs(5);
/// Likewise where the server does not let us listen.
const DEAF: Duration = Duration::from_millis(250);

impl DelayQueue {
    /// To take messages with.
    pub fn taker(&self) -> Taker {
        Taker::new(self.clone())
    }
}

impl Taker {
    pub(crate) fn new(queue: DelayQueue) -> Self {
        let hub = &queue.0.servers.hub;
        let slots = queue.0.topic.slots.iter().map(|keys| Slot::new(hub.wait(keys.slot()))).collect();
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
            self.told(slot, &asked);
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
        let room = room.min(super::slot_calls::MOST);
        for _ in asked..self.slots.len() {
            if taken.len() >= room {
                break;
            }
            let slot = self.turns();
            match self.queue.take_from(slot, room - taken.len(), false, &[]).await {
                Ok(batch) => taken.extend(batch.taken),
                Err(error) if taken.is_empty() => return Err(delay_error("taking", error)),
                Err(_) => break,
            }
        }
        Ok(taken)
    }

    /// The slot whose turn it is.
    pub(crate) fn turns(&mut self) -> u16 {
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
            let bells = select_all(self.slots.iter_mut().map(|slot| slot.bell.as_mut()));
            tokio::select! {
                ((), rung, _) = bells => self.rung(rung),
                () = tokio::time::sleep_until(first) => {}
            }
        }
    }

    /// The next slot that is worth asking.
    pub(crate) fn next_now(&mut self) -> Option<u16> {
        let now = Instant::now();
        for _ in 0..self.slots.len() {
            let slot = self.turns();
            if self.slots[usize::from(slot)].next <= now {
                return Some(slot);
            }
        }
        None
    }

    fn rung(&mut self, slot: usize) {
        let slot = &mut self.slots[slot];
        // Before it is asked: what is told from now on is heard.
        slot.bell = listening(&slot.waiting);
        slot.next = Instant::now();
    }

    /// What a question came to.
    pub(crate) fn told(&mut self, slot: u16, asked: &Result<Batch, StoreError>) {
        let sleep = if self.queue.hears() { SEEN_TO } else { DEAF };
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
