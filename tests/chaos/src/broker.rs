//! The broker, which delivers at least once, redelivers unacknowledged messages, and sometimes redelivers acknowledged
//! ones.
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::time::Duration;

use tokio::time::Instant;

use crate::plan::Sent;
use crate::wire::Message;

/// A delivery that is neither acknowledged nor refused for so long comes again, while its worker may still be at it.
const VISIBILITY: Duration = Duration::from_millis(2_500);

#[derive(Debug, Default)]
pub(crate) struct Broker {
    waiting: BinaryHeap<Reverse<(Instant, u64)>>,
    /// Handed out: when it is overdue.
    overdue: BinaryHeap<Reverse<(Instant, u64)>>,
    copies: BTreeMap<u64, Copy>,
    next: u64,
    pub(crate) redelivered: u64,
}

/// One copy of a message; its number is the delivery's.
#[derive(Debug)]
struct Copy {
    message: Message,
    altered: bool,
    late: Option<Duration>,
    /// The incarnation that has it.
    out: Option<u32>,
}

/// Handed to a worker.
#[derive(Debug)]
pub(crate) struct Handed {
    pub(crate) delivery: u64,
    pub(crate) message: Message,
    pub(crate) altered: bool,
}

impl Broker {
    /// Takes a message; all its copies are due at once.
    pub(crate) fn send(&mut self, sent: &Sent, now: Instant) {
        for copy in 0..sent.copies {
            let late = sent.late.filter(|_| copy == 0);
            self.put(Copy { message: sent.message.clone(), altered: false, late, out: None }, now);
        }
        if sent.altered {
            let altered = Copy { message: sent.message.clone(), altered: true, late: None, out: None };
            self.put(altered, now);
        }
    }

    fn put(&mut self, copy: Copy, due: Instant) {
        self.next += 1;
        self.copies.insert(self.next, copy);
        self.waiting.push(Reverse((due, self.next)));
    }

    /// The next delivery that is due, for this worker.
    pub(crate) fn hand_out(&mut self, worker: u32, now: Instant) -> Option<Handed> {
        while let Some(Reverse((due, delivery))) = self.waiting.peek().copied() {
            if due > now {
                return None;
            }
            self.waiting.pop();
            // An earlier worker has acknowledged the delivery.
            let Some(copy) = self.copies.get_mut(&delivery) else { continue };
            copy.out = Some(worker);
            self.overdue.push(Reverse((now + VISIBILITY, delivery)));
            return Some(Handed { delivery, message: copy.message.clone(), altered: copy.altered });
        }
        None
    }

    /// Puts back what is overdue; its worker may settle it all the same.
    pub(crate) fn put_back_overdue(&mut self, now: Instant) {
        while let Some(Reverse((_, delivery))) = self.overdue.peek().copied().filter(|Reverse((due, _))| *due <= now) {
            self.overdue.pop();
            if self.copies.get(&delivery).is_some_and(|copy| copy.out.is_some()) {
                self.again(delivery, now);
            }
        }
    }

    fn again(&mut self, delivery: u64, due: Instant) {
        if let Some(copy) = self.copies.get_mut(&delivery) {
            copy.out = None;
            self.redelivered += 1;
            self.waiting.push(Reverse((due, delivery)));
        }
    }

    /// Settled; it may come late once more.
    pub(crate) fn ack(&mut self, delivery: u64, now: Instant) {
        let Some(copy) = self.copies.remove(&delivery) else { return };
        if let Some(late) = copy.late {
            self.put(Copy { late: None, out: None, ..copy }, now + late);
        }
    }

    /// Schedules a retry. The call has no effect if the worker no longer has the delivery.
    pub(crate) fn nack(&mut self, delivery: u64, worker: u32, due: Instant) {
        if self.copies.get(&delivery).is_some_and(|copy| copy.out == Some(worker)) {
            self.again(delivery, due);
        }
    }

    /// A worker is gone, and with it its connection: what it had comes again.
    pub(crate) fn gone(&mut self, worker: u32, now: Instant) {
        let had = self.copies.iter().filter(|(_, copy)| copy.out == Some(worker));
        let had: Vec<_> = had.map(|(delivery, _)| *delivery).collect();
        for delivery in had {
            self.again(delivery, now);
        }
    }

    /// Returns the number of deliveries that a worker has.
    pub(crate) fn out(&self, worker: u32) -> usize {
        self.copies.values().filter(|copy| copy.out == Some(worker)).count()
    }

    /// Returns the number of unsettled messages.
    pub(crate) fn left(&self) -> usize {
        self.copies.len()
    }

    /// Returns the time of the next event.
    pub(crate) fn due(&self) -> Option<Instant> {
        let first = |of: &BinaryHeap<Reverse<(Instant, u64)>>| of.peek().map(|Reverse((due, _))| *due);
        [first(&self.waiting), first(&self.overdue)].into_iter().flatten().min()
    }
}
