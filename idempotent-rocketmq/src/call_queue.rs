//! What listeners brought and nobody has taken yet, in the order of its queue.
//!
//! The client decides in order which call of the listener comes next, and then makes the calls on threads that overtake
//! each other. So each call is announced first, on the client's one worker thread, and what it brings has to wait for those
//! that were announced before.
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rocketmq_client_rust::{ConsumeMessageContext, ConsumeMessageHook};
use rocketmq_model::common::message::message_queue::MessageQueue;
use tokio::sync::Notify;

/// A call of the listener: its queue, and the place of its first message there.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Call {
    queue: MessageQueue,
    offset: i64,
}

impl Call {
    pub(crate) fn new(queue: &MessageQueue, offset: i64) -> Self {
        Self { queue: queue.clone(), offset }
    }
}

/// Messages that wait to be taken.
#[derive(Debug)]
pub(crate) struct Stock<T> {
    inner: Mutex<Inner<T>>,
    changed: Notify,
}

#[derive(Debug)]
struct Inner<T> {
    /// With what each brought; `None` while it is only announced.
    calls: VecDeque<(Call, Option<VecDeque<T>>)>,
    closed: bool,
}

impl<T> Default for Stock<T> {
    fn default() -> Self {
        Self { inner: Mutex::new(Inner { calls: VecDeque::new(), closed: false }), changed: Notify::new() }
    }
}

impl<T> Stock<T> {
    pub(crate) fn announce(&self, call: Call) {
        self.lock().calls.push_back((call, None));
    }

    /// Nothing more comes of this call: where it brought nothing, nobody has to wait for it.
    pub(crate) fn forget(&self, call: &Call) {
        self.lock().calls.retain(|(known, brought)| known != call || brought.is_some());
        self.changed.notify_one();
    }

    /// Dropped at once where nobody takes it any more.
    pub(crate) fn bring(&self, call: Call, messages: VecDeque<T>) {
        let mut inner = self.lock();
        if inner.closed {
            drop(inner);
            return drop(messages);
        }
        match inner.calls.iter_mut().find(|(known, brought)| *known == call && brought.is_none()) {
            Some((_, brought)) => *brought = Some(messages),
            None => inner.calls.push_back((call, Some(messages))),
        }
        drop(inner);
        self.changed.notify_one();
    }

    /// At least one, at most `room`.
    ///
    /// # Cancellation
    /// Nothing was taken.
    pub(crate) async fn take(&self, room: usize) -> Vec<T> {
        loop {
            let changed = self.changed.notified();
            let taken = self.receive_now(room);
            if !taken.is_empty() {
                return taken;
            }
            changed.await;
        }
    }

    fn receive_now(&self, room: usize) -> Vec<T> {
        let mut inner = self.lock();
        let mut taken = Vec::new();
        while taken.len() < room
            && let Some((_, Some(brought))) = inner.calls.front_mut()
        {
            match brought.pop_front() {
                Some(message) => taken.push(message),
                None => drop(inner.calls.pop_front()),
            }
        }
        taken
    }

    /// Drops what is there, and what comes.
    pub(crate) fn close(&self) {
        let left = {
            let mut inner = self.lock();
            inner.closed = true;
            std::mem::take(&mut inner.calls)
        };
        drop(left);
    }

    fn lock(&self) -> MutexGuard<'_, Inner<T>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Announces.
pub(crate) struct Announcer<F>(pub(crate) F);

/// What an [`Announcer`] tells.
pub(crate) enum Told {
    Begins(Call),
    Ended(Call),
}

impl<F: Fn(Told) + Send + Sync> Announcer<F> {
    fn tell(&self, context: &ConsumeMessageContext<'_>, told: impl FnOnce(Call) -> Told) {
        if let (Some(queue), Some(first)) = (&context.mq, context.msg_list.first()) {
            (self.0)(told(Call::new(queue, first.queue_offset())));
        }
    }
}

impl<F: Fn(Told) + Send + Sync> ConsumeMessageHook for Announcer<F> {
    fn hook_name(&self) -> &'static str {
        "idempotent"
    }

    fn consume_message_before(&self, context: &mut ConsumeMessageContext<'_>) {
        self.tell(context, Told::Begins);
    }

    fn consume_message_after(&self, context: &mut ConsumeMessageContext<'_>) {
        self.tell(context, Told::Ended);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(offset: i64) -> Call {
        Call::new(&MessageQueue::from_parts("t", "b", 0), offset)
    }

    #[tokio::test]
    async fn what_overtakes_another_call_waits_for_it() {
        let stock = Stock::default();
        for offset in 0..4 {
            stock.announce(call(offset));
        }
        stock.bring(call(1), [10, 11].into());
        assert!(stock.receive_now(9).is_empty(), "the first call has brought nothing yet");
        stock.bring(call(0), [0].into());
        assert_eq!(stock.take(2).await, [0, 10]);
        stock.bring(call(3), [30].into());
        assert_eq!(stock.take(9).await, [11], "the third is missing");
        // One that is called without an announcement comes last.
        stock.bring(call(7), [70].into());
        stock.forget(&call(2));
        assert_eq!(stock.take(9).await, [30, 70]);
        stock.forget(&call(7));
    }

    #[test]
    fn a_call_that_is_over_and_taken_in_part_keeps_its_rest() {
        let stock = Stock::default();
        stock.announce(call(0));
        stock.bring(call(0), [1, 2].into());
        assert_eq!(stock.receive_now(1), [1]);
        stock.forget(&call(0));
        assert_eq!(stock.receive_now(9), [2]);
    }

    #[test]
    fn nothing_is_kept_once_it_is_closed() {
        let stock = Stock::default();
        stock.announce(call(0));
        stock.bring(call(0), [1].into());
        stock.close();
        stock.bring(call(1), [2].into());
        assert!(stock.receive_now(9).is_empty());
    }
}
