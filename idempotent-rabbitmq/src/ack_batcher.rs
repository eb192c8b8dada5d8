//! Batched acknowledgements of one channel. Acknowledgements of consecutive deliveries share one frame.
//!
//! One task sends the frames. Acknowledgements that arrive while the task sends are sent together next, so a busy
//! consumer sends fewer frames. No acknowledgement waits for others.
use std::collections::BTreeSet;

use futures_util::future::join_all;
use lapin::Acker;
use lapin::options::BasicAckOptions;
use lapin::types::DeliveryTag;
use tokio::sync::{mpsc, oneshot};

/// Sends the acknowledgements of a channel in batches. The task ends when this value is dropped.
#[derive(Debug)]
pub(crate) struct AckBatcher(mpsc::UnboundedSender<AckCommand>);

#[derive(Debug)]
enum AckCommand {
    PendingAck(PendingAck),
    /// The delivery was given back to the broker: it needs no acknowledgement and no longer blocks others.
    GivenBack(DeliveryTag),
}

#[derive(Debug)]
struct PendingAck {
    tag: DeliveryTag,
    acker: Acker,
    answer: oneshot::Sender<lapin::Result<bool>>,
}

/// The maximum number of acknowledgements in one round. It does not limit the deliveries in flight.
const MAX_BATCH: usize = 1024;

impl AckBatcher {
    /// Starts the task.
    ///
    /// # Panics
    /// Panics outside of a tokio runtime.
    pub(crate) fn new() -> Self {
        let (acks, receiver) = mpsc::unbounded_channel();
        tokio::spawn(send(receiver));
        Self(acks)
    }

    /// Acknowledges one delivery. Returns after the connection has accepted the frame, or `None` if the task has
    /// ended.
    ///
    /// # Cancellation
    /// The acknowledgement is sent nevertheless, if the connection lasts.
    pub(crate) async fn ack(&self, tag: DeliveryTag, acker: Acker) -> Option<lapin::Result<bool>> {
        let (answer, answered) = oneshot::channel();
        self.0.send(AckCommand::PendingAck(PendingAck { tag, acker, answer })).ok()?;
        answered.await.ok()
    }

    /// Records that a delivery was given back by a frame that the connection has accepted. Later frames follow that
    /// frame.
    pub(crate) fn given_back(&self, tag: DeliveryTag) {
        // If the task has ended, no acknowledgement is sent any more.
        let _ = self.0.send(AckCommand::GivenBack(tag));
    }
}

async fn send(mut acks: mpsc::UnboundedReceiver<AckCommand>) {
    let (mut settled, mut told, mut some) = (SettledTags::default(), Vec::new(), Vec::new());
    while acks.recv_many(&mut told, MAX_BATCH).await > 0 {
        for told in told.drain(..) {
            match told {
                AckCommand::PendingAck(ack) => some.push(ack),
                AckCommand::GivenBack(tag) => settled.given_back(tag),
            }
        }
        some.sort_unstable_by_key(|ack| ack.tag);
        let joined = settled.join(some.iter().map(|ack| ack.tag));
        // The last delivery of a batch acknowledges the whole batch.
        let (together, alone) = some.split_at(joined);
        let multiple = async {
            match together.last() {
                Some(last) => last.acker.ack(BasicAckOptions { multiple: joined > 1 }).await,
                None => Ok(true),
            }
        };
        let each = alone.iter().map(|ack| ack.acker.ack(BasicAckOptions::default()));
        let (multiple, each) = futures_util::future::join(multiple, join_all(each)).await;
        let answers = std::iter::repeat_n(multiple, joined).chain(each);
        for (ack, answer) in some.drain(..).zip(answers) {
            // The caller may have been dropped.
            let _ = ack.answer.send(answer);
        }
    }
}

/// The settled deliveries of a channel. Delivery tags are 1, 2, 3 and so on, in order of delivery. After a gap, or
/// after a delivery that is never acknowledged, no acknowledgements are batched.
#[derive(Debug, Default)]
struct SettledTags {
    /// All deliveries up to this tag are settled.
    up_to: DeliveryTag,
    beyond: BTreeSet<DeliveryTag>,
    /// True if one delivery is never settled. Nothing is recorded any more.
    stuck: bool,
}

/// More than the deliveries in flight on a channel: the prefetch is at most 65,535.
const MAX_SETTLED: usize = 1 << 16;

impl SettledTags {
    /// Returns how many of these deliveries, from the first one, can share one acknowledgement with the flag
    /// `multiple`. The tags are ascending, and none of them was passed before.
    ///
    /// A delivery that still runs, or whose copy is not confirmed yet, ends the batch: the flag would acknowledge it
    /// too.
    fn join(&mut self, tags: impl Iterator<Item = DeliveryTag> + Clone) -> usize {
        if self.stuck {
            return 0;
        }
        self.beyond.extend(tags.clone());
        self.advance();
        if self.beyond.len() > MAX_SETTLED {
            self.beyond.clear();
            self.stuck = true;
            return 0;
        }
        tags.take_while(|tag| *tag <= self.up_to).count()
    }

    /// Records that a delivery was given back.
    fn given_back(&mut self, tag: DeliveryTag) {
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

    #[test]
    fn only_what_has_nothing_unsettled_before_it_is_joined() {
        let mut settled = SettledTags::default();
        assert_eq!(join(&mut settled, &[1, 2, 3]), 3);
        // Delivery 4 still runs.
        assert_eq!(join(&mut settled, &[5, 6]), 0);
        assert_eq!(join(&mut settled, &[4, 8]), 1);
        // Tags that were acknowledged alone are skipped.
        assert_eq!(join(&mut settled, &[7, 9, 11]), 2);
        assert_eq!((settled.up_to, settled.beyond.len()), (9, 1));
        settled.given_back(10);
        assert_eq!((settled.up_to, join(&mut settled, &[12])), (11, 1));
    }

    #[test]
    fn whatever_the_order_all_up_to_here_are_done() {
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
                // One of the first tags, so that some tags are overtaken.
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
    fn one_that_is_never_acknowledged_costs_frames_but_no_memory() {
        let mut settled = SettledTags::default();
        for tag in 2..200_000 {
            assert_eq!(join(&mut settled, &[tag]), 0);
            assert!(settled.beyond.len() <= MAX_SETTLED);
        }
        assert_eq!(join(&mut settled, &[1]), 0, "nobody knows any more what is behind it");
    }
}
