//! Messages that listeners have delivered and that the source has not yet taken, in the order of their queue.
//!
//! The client starts the calls of the listener in order, but runs them on threads that may overtake each other. Each call is
//! therefore announced first, on the client's only worker thread. The messages of a call wait for all calls that were
//! announced before.
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rocketmq_client_rust::{ConsumeMessageContext, ConsumeMessageHook};
use rocketmq_model::common::message::message_queue::MessageQueue;
use tokio::sync::Notify;

/// The identity of a call: its queue, and the offset of its first message.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct ListenerCall {
    queue: MessageQueue,
    offset: i64,
}

impl ListenerCall {
    pub(crate) fn new(queue: &MessageQueue, offset: i64) -> Self {
        Self { queue: queue.clone(), offset }
    }
}

/// A queue of calls with their messages.
#[derive(Debug)]
pub(crate) struct CallQueue<T> {
    state: Mutex<CallQueueState<T>>,
    changed: Notify,
}

#[derive(Debug)]
struct CallQueueState<T> {
    /// Calls with their messages, or with `None` before the messages are delivered.
    calls: VecDeque<(ListenerCall, Option<VecDeque<T>>)>,
    closed: bool,
}

impl<T> Default for CallQueue<T> {
    fn default() -> Self {
        let state = CallQueueState { calls: VecDeque::new(), closed: false };
        Self { state: Mutex::new(state), changed: Notify::new() }
    }
}

impl<T> CallQueue<T> {
    pub(crate) fn announce(&self, call: ListenerCall) {
        self.lock().calls.push_back((call, None));
    }

    /// Removes a finished call that has delivered no messages, so that later calls do not wait for it.
    pub(crate) fn finish(&self, call: &ListenerCall) {
        self.lock().calls.retain(|(known, messages)| known != call || messages.is_some());
        self.changed.notify_one();
    }

    /// Adds the messages of a call, or drops the messages if the queue is closed.
    pub(crate) fn deliver(&self, call: ListenerCall, messages: VecDeque<T>) {
        let mut state = self.lock();
        if state.closed {
            drop(state);
            return drop(messages);
        }
        match state.calls.iter_mut().find(|(known, delivered)| *known == call && delivered.is_none()) {
            Some((_, delivered)) => *delivered = Some(messages),
            None => state.calls.push_back((call, Some(messages))),
        }
        drop(state);
        self.changed.notify_one();
    }

    /// Waits for messages and takes at least one and at most `room`.
    ///
    /// # Cancellation
    /// No message is taken.
    pub(crate) async fn take(&self, room: usize) -> Vec<T> {
        loop {
            let changed = self.changed.notified();
            let taken = self.take_now(room);
            if !taken.is_empty() {
                return taken;
            }
            changed.await;
        }
    }

    fn take_now(&self, room: usize) -> Vec<T> {
        let mut state = self.lock();
        let mut taken = Vec::new();
        while taken.len() < room
            && let Some((_, Some(messages))) = state.calls.front_mut()
        {
            match messages.pop_front() {
                Some(message) => taken.push(message),
                None => drop(state.calls.pop_front()),
            }
        }
        taken
    }

    /// Drops all messages, and each message that is delivered later.
    pub(crate) fn close(&self) {
        let left = {
            let mut state = self.lock();
            state.closed = true;
            std::mem::take(&mut state.calls)
        };
        drop(left);
    }

    fn lock(&self) -> MutexGuard<'_, CallQueueState<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A hook of the client that reports the start and the end of each call.
pub(crate) struct CallObserver<F>(pub(crate) F);

/// An event that a [`CallObserver`] reports.
pub(crate) enum CallEvent {
    Started(ListenerCall),
    Ended(ListenerCall),
}

impl<F: Fn(CallEvent) + Send + Sync> CallObserver<F> {
    fn report(&self, context: &ConsumeMessageContext<'_>, event: impl FnOnce(ListenerCall) -> CallEvent) {
        if let (Some(queue), Some(first)) = (&context.mq, context.msg_list.first()) {
            (self.0)(event(ListenerCall::new(queue, first.queue_offset())));
        }
    }
}

impl<F: Fn(CallEvent) + Send + Sync> ConsumeMessageHook for CallObserver<F> {
    fn hook_name(&self) -> &'static str {
        "idempotent"
    }

    fn consume_message_before(&self, context: &mut ConsumeMessageContext<'_>) {
        self.report(context, CallEvent::Started);
    }

    fn consume_message_after(&self, context: &mut ConsumeMessageContext<'_>) {
        self.report(context, CallEvent::Ended);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(offset: i64) -> ListenerCall {
        ListenerCall::new(&MessageQueue::from_parts("t", "b", 0), offset)
    }

    #[tokio::test]
    async fn messages_of_a_call_wait_for_all_calls_that_were_announced_before() {
        let queue = CallQueue::default();
        for offset in 0..4 {
            queue.announce(call(offset));
        }
        queue.deliver(call(1), [10, 11].into());
        assert!(queue.take_now(9).is_empty(), "the first call has not delivered yet");
        queue.deliver(call(0), [0].into());
        assert_eq!(queue.take(2).await, [0, 10]);
        queue.deliver(call(3), [30].into());
        assert_eq!(queue.take(9).await, [11], "the third call is missing");
        // A call without an announcement comes last.
        queue.deliver(call(7), [70].into());
        queue.finish(&call(2));
        assert_eq!(queue.take(9).await, [30, 70]);
        queue.finish(&call(7));
    }

    #[test]
    fn a_finished_call_keeps_the_messages_that_are_not_yet_taken() {
        let queue = CallQueue::default();
        queue.announce(call(0));
        queue.deliver(call(0), [1, 2].into());
        assert_eq!(queue.take_now(1), [1]);
        queue.finish(&call(0));
        assert_eq!(queue.take_now(9), [2]);
    }

    #[test]
    fn a_closed_queue_keeps_no_messages() {
        let queue = CallQueue::default();
        queue.announce(call(0));
        queue.deliver(call(0), [1].into());
        queue.close();
        queue.deliver(call(1), [2].into());
        assert!(queue.take_now(9).is_empty());
    }
}
