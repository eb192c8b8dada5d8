//! Virtual time in µs since the start of a play, and the queue of events in their order.
use std::cmp::Reverse;
use std::collections::BinaryHeap;

pub(super) const MILLISECOND: u64 = 1_000;
pub(super) const SECOND: u64 = 1_000 * MILLISECOND;
pub(super) const MINUTE: u64 = 60 * SECOND;
pub(super) const HOUR: u64 = 60 * MINUTE;
pub(super) const DAY: u64 = 24 * HOUR;

/// An event of the model. Numbers are positions in the lists of the play.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Event {
    /// The producer sends the next message.
    Produced,
    /// The broker delivers a message, for the nth time after this number of postponements.
    Delivered { message: u32, tries: u32 },
    /// A request reaches its master.
    Requested(u32),
    /// An answer reaches its process.
    Answered(u32),
    /// The handler of a call ends.
    HandlerEnded(u32),
    /// A process looks at the header of a slot.
    Swept(u32),
    /// The judge looks for the marker of a message.
    Probed(u32),
    /// The judge measures the memory.
    Measured,
    /// The nth fault of the plan begins.
    Fault(u32),
    /// A master serves again after a failure.
    Promoted(u32),
    /// A slot belongs to its new master.
    Moved(u32),
}

impl Event {
    /// Returns whether the event only accompanies others. Such events do not keep a play running.
    fn is_periodic(self) -> bool {
        matches!(self, Self::Swept(_) | Self::Measured)
    }
}

/// The future events of a play. Events of one instant keep the order in which they were added.
#[derive(Debug, Default)]
pub(super) struct EventQueue {
    heap: BinaryHeap<Reverse<(u64, u64, Event)>>,
    added: u64,
    required: usize,
}

impl EventQueue {
    pub(super) fn add(&mut self, at: u64, event: Event) {
        self.added += 1;
        self.required += usize::from(!event.is_periodic());
        self.heap.push(Reverse((at, self.added, event)));
    }

    /// Returns the next event, or `None` if only periodic events are left.
    pub(super) fn next(&mut self) -> Option<(u64, Event)> {
        if self.required == 0 {
            return None;
        }
        let Reverse((at, _, event)) = self.heap.pop()?;
        self.required -= usize::from(!event.is_periodic());
        Some((at, event))
    }
}
