//! Joint acknowledgements: consecutive deliveries of a channel are acknowledged with one frame.
//!
//! One task sends the acknowledgements. Requests that arrive while the task is sending form the next batch, so a busy
//! consumer sends fewer frames. No request waits for further requests.
use std::collections::BTreeSet;

use futures_util::future::join_all;
use lapin::Acker;
use lapin::options::BasicAckOptions;
use lapin::types::DeliveryTag;
use tokio::sync::{mpsc, oneshot};

/// The sender of acknowledgements of one channel. Its task ends with the drop.
#[derive(Debug)]
pub(crate) struct AckBatcher(mpsc::UnboundedSender<AckRequest>);

#[derive(Debug)]
enum AckRequest {
    Ack(PendingAck),
    /// The delivery was given back. Nothing is sent, and a joint acknowledgement may cover the delivery.
    GivenBack(DeliveryTag),
}

#[derive(Debug)]
struct PendingAck {
    tag: DeliveryTag,
    acker: Acker,
    answer: oneshot::Sender<lapin::Result<bool>>,
}

/// Maximum number of requests that are sent at a time. Further requests wait in the channel.
const MAX_REQUESTS: usize = 1024;

impl AckBatcher {
    /// Starts the task.
    ///
    /// # Panics
    /// There is no tokio runtime.
    pub(crate) fn new() -> Self {
        let (requests, receiver) = mpsc::unbounded_channel();
        tokio::spawn(send_acks(receiver));
        Self(requests)
    }

    /// Acknowledges a delivery. Returns when the connection has accepted the frame, or `None` if the task has ended.
    ///
    /// # Cancellation
    /// The delivery is acknowledged, unless the connection fails.
    pub(crate) async fn ack(&self, tag: DeliveryTag, acker: Acker) -> Option<lapin::Result<bool>> {
        let (answer, answered) = oneshot::channel();
        self.0.send(AckRequest::Ack(PendingAck { tag, acker, answer })).ok()?;
        answered.await.ok()
    }

    /// Records that a delivery was given back. The connection has accepted that frame, so later frames follow it.
    pub(crate) fn note_given_back(&self, tag: DeliveryTag) {
        // If the task has ended, nothing more is acknowledged.
        let _ = self.0.send(AckRequest::GivenBack(tag));
    }
}

async fn send_acks(mut requests: mpsc::UnboundedReceiver<AckRequest>) {
    let (mut settled, mut received, mut acks) = (SettledTags::default(), Vec::new(), Vec::new());
    while requests.recv_many(&mut received, MAX_REQUESTS).await > 0 {
        for request in received.drain(..) {
            match request {
                AckRequest::Ack(ack) => acks.push(ack),
                AckRequest::GivenBack(tag) => settled.note_given_back(tag),
            }
        }
        acks.sort_unstable_by_key(|ack| ack.tag);
        let joined = settled.join(acks.iter().map(|ack| ack.tag));
        // The acknowledgement of the last joined delivery covers the others.
        let (together, separate) = acks.split_at(joined);
        let multiple = async {
            match together.last() {
                Some(last) => last.acker.ack(BasicAckOptions { multiple: joined > 1 }).await,
                None => Ok(true),
            }
        };
        let each = separate.iter().map(|ack| ack.acker.ack(BasicAckOptions::default()));
        let (multiple, each) = futures_util::future::join(multiple, join_all(each)).await;
        let answers = std::iter::repeat_n(multiple, joined).chain(each);
        for (ack, answer) in acks.drain(..).zip(answers) {
            // The caller may have been cancelled.
            let _ = ack.answer.send(answer);
        }
    }
}

/// The settled deliveries of a channel. Their tags are 1, 2, 3 and so on in the order of delivery. If the broker skips
/// a tag, or a delivery is never settled, later acknowledgements are not joined.
#[derive(Debug, Default)]
struct SettledTags {
    /// The last tag up to which all deliveries are settled.
    up_to: DeliveryTag,
    /// Settled tags after `up_to`.
    beyond: BTreeSet<DeliveryTag>,
    /// True if too many tags follow an unsettled delivery. Tags are then no longer recorded.
    stuck: bool,
}

/// Maximum number of tags after `up_to`, more than the maximum prefetch of 65,535.
const MAX_BEYOND: usize = 1 << 16;

impl SettledTags {
    /// Returns how many of these tags, from the first one, a joint acknowledgement may cover. The tags are new and in
    /// order.
    ///
    /// A joint acknowledgement covers all earlier deliveries, so it must not be later than an unsettled one: a delivery
    /// whose handler runs, or whose copy is not confirmed.
    fn join(&mut self, tags: impl Iterator<Item = DeliveryTag> + Clone) -> usize {
        if self.stuck {
            return 0;
        }
        self.beyond.extend(tags.clone());
        self.advance();
        if self.beyond.len() > MAX_BEYOND {
            self.beyond.clear();
            self.stuck = true;
            return 0;
        }
        tags.take_while(|tag| *tag <= self.up_to).count()
    }

    /// Records a delivery that was given back.
    fn note_given_back(&mut self, tag: DeliveryTag) {
        if !self.stuck {
            self.beyond.insert(tag);
            self.advance();
        }
    }

    fn advance(&mut self) {
        while self.beyond.first() == Some(&(self.up_to + 1)) {
            self.beyond.pop_first();
            self.up_to += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn join(settled: &mut SettledTags, tags: &[DeliveryTag]) -> usize {
        settled.join(tags.iter().copied())
    }

    #[tokio::test]
    async fn the_task_ends_with_its_channel() {
        let (requests, receiver) = mpsc::unbounded_channel();
        drop(requests);
        send_acks(receiver).await;
    }

    #[test]
    fn only_acknowledgements_without_earlier_unsettled_deliveries_are_joined() {
        let mut settled = SettledTags::default();
        assert_eq!(join(&mut settled, &[1, 2, 3]), 3);
        // 4 is unsettled.
        assert_eq!(join(&mut settled, &[5, 6]), 0);
        assert_eq!(join(&mut settled, &[4, 8]), 1);
        // 5 and 6 were acknowledged separately.
        assert_eq!(join(&mut settled, &[7, 9, 11]), 2);
        assert_eq!((settled.up_to, settled.beyond.len()), (9, 1));
        settled.note_given_back(10);
        assert_eq!((settled.up_to, join(&mut settled, &[12])), (11, 1));
    }

    #[test]
    fn a_joint_acknowledgement_covers_only_settled_deliveries_in_any_order() {
        let mut state = 17u64;
        let mut below = |limit: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            usize::try_from(state >> 33).unwrap_or(0) % limit
        };
        let mut joined = 0;
        for _ in 0..200 {
            let (mut settled, mut done) = (SettledTags::default(), BTreeSet::<DeliveryTag>::new());
            // Every 97th delivery is never settled.
            let mut open: Vec<_> = (1..400).filter(|tag| tag % 97 != 0).collect();
            while !open.is_empty() {
                // Random choices among the first 16, so the order changes.
                let mut some: Vec<_> = (0..1 + below(8))
                    .filter_map(|_| match open.len() {
                        0 => None,
                        left => Some(open.remove(below(left.min(16)))),
                    })
                    .collect();
                some.sort_unstable();
                done.extend(&some);
                if let Some(last) = some[..join(&mut settled, &some)].last() {
                    assert!((1..=*last).all(|tag| done.contains(&tag)), "{last} of {done:?}");
                    joined += 1;
                }
            }
        }
        assert!(joined > 200, "{joined}");
    }

    #[test]
    fn a_delivery_that_is_never_settled_costs_frames_but_no_memory() {
        let mut settled = SettledTags::default();
        for tag in 2..200_000 {
            assert_eq!(join(&mut settled, &[tag]), 0);
            assert!(settled.beyond.len() <= MAX_BEYOND);
        }
        assert_eq!(join(&mut settled, &[1]), 0, "the tags after the first one are no longer recorded");
    }

    #[test]
    fn a_delivery_that_was_given_back_is_passed_to_the_task() {
        let (requests, mut receiver) = mpsc::unbounded_channel();
        AckBatcher(requests).note_given_back(7);
        assert!(matches!(receiver.try_recv(), Ok(AckRequest::GivenBack(7))));
    }
}
