//! The listener that the client calls with messages.
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use rocketmq_client_rust::{
    ClientResult, ConsumeConcurrentlyContext, ConsumeConcurrentlyStatus, ConsumeOrderlyContext, ConsumeOrderlyStatus,
    MessageListenerConcurrently, MessageListenerOrderly,
};
use rocketmq_model::common::message::message_ext::MessageExt;
use rocketmq_model::common::message::message_queue::MessageQueue;
use tokio::sync::oneshot;
use tracing::warn;

use crate::call_queue::ListenerCall;
use crate::session::{ConsumerSession, DeliveryAnswer, QueuedDelivery};

/// A listener that hands messages to a session. Each call blocks its thread until all messages of the call are settled.
pub(crate) struct SessionListener(pub(crate) Arc<ConsumerSession>);

/// Delay of the copy of a dropped delivery.
const DROPPED_DELAY: Duration = Duration::from_secs(1);

impl MessageListenerConcurrently for SessionListener {
    fn consume_message(
        &self,
        messages: &[&MessageExt],
        context: &ConsumeConcurrentlyContext,
    ) -> ClientResult<ConsumeConcurrentlyStatus> {
        let session = &self.0;
        let (mut queued, mut pending) = (VecDeque::new(), Vec::new());
        let queue = context.get_message_queue();
        // The original of each copy had a wanted tag.
        let is_retry = queue.topic().as_str() == session.settings.retry_topic;
        for message in messages.iter().filter(|message| is_retry || session.wants(message)) {
            let (answer, answered) = oneshot::channel();
            let (delivery, headers) = session.decode(message, queue);
            queued.push_back(QueuedDelivery { delivery, headers, answer });
            pending.push((message, answered));
        }
        let Some(first) = messages.first().filter(|_| !pending.is_empty()) else {
            return Ok(ConsumeConcurrentlyStatus::ConsumeSuccess);
        };
        session.calls.deliver(ListenerCall::new(queue, first.queue_offset()), queued);
        let settled: Vec<bool> =
            pending.into_iter().map(|(message, answered)| self.wait(message, queue, answered)).collect();
        Ok(match settled.into_iter().all(|settled| settled) {
            true => ConsumeConcurrentlyStatus::ConsumeSuccess,
            false => ConsumeConcurrentlyStatus::ReconsumeLater,
        })
    }
}

impl MessageListenerOrderly for SessionListener {
    fn consume_message(
        &self,
        messages: &[&MessageExt],
        context: &mut ConsumeOrderlyContext,
    ) -> ClientResult<ConsumeOrderlyStatus> {
        let queue = context.get_message_queue().clone();
        let is_retry = queue.topic().as_str() == self.0.settings.retry_topic;
        for message in messages.iter().filter(|message| is_retry || self.0.wants(message)) {
            if !self.settle_in_place(message, &queue) {
                return Ok(ConsumeOrderlyStatus::SuspendCurrentQueueAMoment);
            }
        }
        Ok(ConsumeOrderlyStatus::Success)
    }
}

impl SessionListener {
    /// Delivers the message until it is settled, and blocks meanwhile, so that the later messages of its queue wait. Returns
    /// false if the session closes before, so that the broker must redeliver the message.
    fn settle_in_place(&self, message: &MessageExt, queue: &MessageQueue) -> bool {
        let ConsumerSession { drain, calls, .. } = &*self.0;
        let (mut delivery, mut headers) = self.0.decode(message, queue);
        loop {
            let (answer, answered) = oneshot::channel();
            let queued = QueuedDelivery { delivery: delivery.clone(), headers: headers.clone(), answer };
            calls.deliver(ListenerCall::new(queue, message.queue_offset()), [queued].into());
            let after = match answered.blocking_recv() {
                Ok(DeliveryAnswer::Settled) => {
                    drain.note_reported();
                    return true;
                }
                Ok(DeliveryAnswer::Again { headers: next, after }) => {
                    headers = *next;
                    after
                }
                Ok(DeliveryAnswer::Dropped) => DROPPED_DELAY,
                Err(_) => {
                    drain.wait_for_client_end();
                    return false;
                }
            };
            drain.note_reported();
            if !drain.wait_unless_closing(after) {
                drain.wait_for_client_end();
                return false;
            }
            delivery = self.0.delivery(&headers, delivery.body, true);
        }
    }

    /// Blocks until the message is settled, and returns whether it is. The broker must redeliver an unsettled message.
    fn wait(&self, message: &MessageExt, queue: &MessageQueue, answered: oneshot::Receiver<DeliveryAnswer>) -> bool {
        let ConsumerSession { drain, producer, .. } = &*self.0;
        match answered.blocking_recv() {
            Ok(DeliveryAnswer::Settled) => {
                drain.note_reported();
                true
            }
            // Only an orderly source answers `Again`.
            Ok(DeliveryAnswer::Dropped | DeliveryAnswer::Again { .. }) => {
                let (delivery, headers) = self.0.decode(message, queue);
                let sent = producer.send_blocking(self.0.copy(&headers, &delivery.body, DROPPED_DELAY));
                drain.note_reported();
                let Err(failure) = sent else { return true };
                let group = &self.0.settings.group;
                warn!(
                    target: "idempotent", group, ?failure,
                    "copying an unsettled message failed; the message is delivered again in its place"
                );
                // The client would send the message back without the flag of its compression, and without its position.
                self.settle_in_place(message, queue)
            }
            // The message was never taken, and the session is closing. Without an answer the broker redelivers the message.
            Err(_) => {
                drain.wait_for_client_end();
                false
            }
        }
    }
}
