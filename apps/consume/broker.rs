//! A broker in this process: hands deliveries out, and takes them back with a delay.
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, Semaphore};
use tokio::time::{Instant, sleep_until};

use crate::dead::DeadLetters;
use crate::delivery::Delivery;
use crate::screen::Screen;
use crate::tally::Tally;

/// Every delivery is in here or with one worker, until it is settled.
#[derive(Debug)]
pub(crate) struct Broker {
    queue: Mutex<Queue>,
    changed: Notify,
    room: Arc<Semaphore>,
    dead: DeadLetters,
    tally: Tally,
    screen: Screen,
}

#[derive(Debug, Default)]
struct Queue {
    /// The earliest due first.
    waiting: BinaryHeap<Reverse<Waiting>>,
    /// Deliveries with a worker.
    out: usize,
    /// Put in so far: of two that are due at once, the one that came first goes first.
    turn: u64,
    input_ended: bool,
    closed: bool,
}

#[derive(Debug)]
struct Waiting {
    due: Instant,
    turn: u64,
    delivery: Delivery,
}

/// Memory that unsettled deliveries may take, in pages; beyond that no line is read.
const PAGES: usize = 8 * 1024;
/// A short line counts as much as this.
const PAGE: usize = 4 * 1024;

impl Broker {
    pub(crate) fn new(dead: DeadLetters, tally: Tally, screen: Screen) -> Self {
        let (queue, changed, room) = (Mutex::default(), Notify::new(), Arc::new(Semaphore::new(PAGES)));
        Self { queue, changed, room, dead, tally, screen }
    }

    /// Adds a delivery as soon as there is room. Returns false if the job has ended.
    pub(crate) async fn publish(&self, number: u64, key: String, line: Vec<u8>) -> bool {
        let pages = u32::try_from(line.len().div_ceil(PAGE).clamp(1, PAGES)).unwrap_or(u32::MAX);
        // Closed together with the broker.
        let Ok(_room) = self.room.clone().acquire_many_owned(pages).await else { return false };
        self.queue().put(Delivery { number, key, line, _room }, Instant::now());
        self.changed.notify_waiters();
        true
    }

    /// The input has ended.
    pub(crate) fn no_more(&self) {
        self.queue().input_ended = true;
        self.changed.notify_waiters();
    }

    /// Hands out nothing more; what is not settled stays so.
    pub(crate) fn close(&self) {
        self.queue().closed = true;
        self.room.close();
        self.changed.notify_waiters();
    }

    /// The next delivery that is due; `None` when all are settled.
    ///
    /// # Cancellation
    /// Loses nothing.
    pub(crate) async fn next(&self) -> Option<Delivery> {
        loop {
            // Listening begins before the queue is looked at: no change in between is missed.
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            let due = match self.queue().next() {
                Next::Take(delivery) => return Some(delivery),
                Next::Over => return None,
                Next::Wait(due) => due,
            };
            match due {
                Some(due) => tokio::select! { () = changed => {}, () = sleep_until(due) => {} },
                None => changed.await,
            }
        }
    }

    /// The delivery is done.
    pub(crate) fn ack(&self, delivery: Delivery) {
        self.screen.settled(delivery.line.len(), &self.tally);
        self.back(None);
    }

    /// Dead-letters a delivery that no handler can process: its line is written first, and then the delivery is
    /// settled.
    pub(crate) fn bury(&self, delivery: Delivery) -> io::Result<()> {
        self.dead.write(&delivery.line)?;
        self.ack(delivery);
        Ok(())
    }

    /// The delivery is to be tried again.
    pub(crate) fn come_back(&self, delivery: Delivery, after: Duration) {
        self.back(Some((delivery, Instant::now() + after)));
    }

    pub(crate) fn dead_letters(&self) -> &DeadLetters {
        &self.dead
    }

    fn back(&self, delivery: Option<(Delivery, Instant)>) {
        let mut queue = self.queue();
        queue.out -= 1;
        if let Some((delivery, due)) = delivery {
            queue.put(delivery, due);
        }
        drop(queue);
        self.changed.notify_waiters();
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

enum Next {
    Take(Delivery),
    /// Until this, or until something changes.
    Wait(Option<Instant>),
    Over,
}

impl Queue {
    fn put(&mut self, delivery: Delivery, due: Instant) {
        self.turn += 1;
        self.waiting.push(Reverse(Waiting { due, turn: self.turn, delivery }));
    }

    fn next(&mut self) -> Next {
        let due = self.waiting.peek().map(|Reverse(first)| first.due);
        match due {
            _ if self.closed => Next::Over,
            Some(due) if due <= Instant::now() => match self.waiting.pop() {
                Some(Reverse(first)) => {
                    self.out += 1;
                    Next::Take(first.delivery)
                }
                None => Next::Over,
            },
            None if self.input_ended && self.out == 0 => Next::Over,
            due => Next::Wait(due),
        }
    }
}

impl Ord for Waiting {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.due, self.turn).cmp(&(other.due, other.turn))
    }
}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Waiting {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Waiting {}
