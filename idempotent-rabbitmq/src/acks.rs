//! Acknowledgements of one channel, joined: those of messages that follow each other go in one frame.
//!
//! One task sends them. While it does, others gather, so that the busier a consumer is, the fewer frames it takes; none
//! waits for others to come.
use std::collections::BTreeSet;

use futures_util::future::join_all;
use lapin::Acker;
use lapin::options::BasicAckOptions;
use lapin::types::DeliveryTag;
use tokio::sync::{mpsc, oneshot};

/// Where acknowledgements of a channel are handed in. It goes on sending until this is dropped.
#[derive(Debug)]
pub(crate) struct Acks(mpsc::UnboundedSender<Told>);

#[derive(Debug)]
enum Told {
    Ack(Ack),
    /// The broker was told that it is not ours: nothing to be sent, and nothing in the way of others any more.
    GivenBack(DeliveryTag),
}

#[derive(Debug)]
struct Ack {
    tag: DeliveryTag,
    acker: Acker,
    answer: oneshot::Sender<lapin::Result<bool>>,
}

/// Sent side by side with those that gather meanwhile; not a limit of what is under way.
const TOGETHER: usize = 1024;

impl Acks {
    /// # Panics
    /// Outside of a tokio runtime.
    pub(crate) fn new() -> Self {
        let (acks, receiver) = mpsc::unbounded_channel();
        tokio::spawn(send(receiver));
        Self(acks)
    }

    /// Acknowledges one delivery, once it was handed to the connection; `None` if the task that does it is gone.
    ///
    /// # Cancellation
    /// It is acknowledged all the same, if the connection lasts.
    pub(crate) async fn ack(&self, tag: DeliveryTag, acker: Acker) -> Option<lapin::Result<bool>> {
        let (answer, answered) = oneshot::channel();
        self.0.send(Told::Ack(Ack { tag, acker, answer })).ok()?;
        answered.await.ok()
    }

    /// One was given back, and that was handed to the connection: what is sent from now on comes behind it.
    pub(crate) fn given_back(&self, tag: DeliveryTag) {
        // Nothing is acknowledged any more otherwise.
        let _ = self.0.send(Told::GivenBack(tag));
    }
}

async fn send(mut acks: mpsc::UnboundedReceiver<Told>) {
    let (mut settled, mut told, mut some) = (Settled::default(), Vec::new(), Vec::new());
    while acks.recv_many(&mut told, TOGETHER).await > 0 {
        for told in told.drain(..) {
            match told {
                Told::Ack(ack) => some.push(ack),
                Told::GivenBack(tag) => settled.given_back(tag),
            }
        }
        some.sort_unstable_by_key(|ack| ack.tag);
        let joined = settled.join(some.iter().map(|ack| ack.tag));
        // The last of those that go together speaks for them.
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
            // Whoever asked may be gone.
            let _ = ack.answer.send(answer);
        }
    }
}

/// Which deliveries of a channel are acknowledged, or given back. Their tags are 1, 2, 3 and so on, in the order they came; where a
/// broker left one out, or one is never acknowledged, nothing behind it is joined any more.
#[derive(Debug, Default)]
struct Settled {
    /// All up to this one.
    up_to: DeliveryTag,
    beyond: BTreeSet<DeliveryTag>,
    /// One is left for good: nothing is remembered any more.
    stuck: bool,
}

/// More than a channel has under way: the prefetch is 65,535 at most.
const MOST: usize = 1 << 16;

impl Settled {
    /// How many of these, from the first one on, may be acknowledged by one that says "all up to here". They are in order,
    /// and none was there before.
    ///
    /// What runs, or is to come again and has no confirmed copy yet, is not acknowledged and holds up the rest: "all up to
    /// here" would be its end.
    fn join(&mut self, tags: impl Iterator<Item = DeliveryTag> + Clone) -> usize {
        if self.stuck {
            return 0;
        }
        self.beyond.extend(tags.clone());
        self.advance();
        if self.beyond.len() > MOST {
            self.beyond.clear();
            self.stuck = true;
            return 0;
        }
        tags.take_while(|tag| *tag <= self.up_to).count()
    }

    /// It is the broker's again.
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

    fn join(settled: &mut Settled, tags: &[DeliveryTag]) -> usize {
        settled.join(tags.iter().copied())
    }

    #[test]
    fn only_what_has_nothing_unsettled_before_it_is_joined() {
        let mut settled = Settled::default();
        assert_eq!(join(&mut settled, &[1, 2, 3]), 3);
        // 4 still runs.
        assert_eq!(join(&mut settled, &[5, 6]), 0);
        assert_eq!(join(&mut settled, &[4, 8]), 1);
        // Those that went alone are passed over.
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
            let (mut settled, mut done) = (Settled::default(), BTreeSet::<DeliveryTag>::new());
            // Every 97th is left for good.
            let mut open: Vec<_> = (1..400).filter(|tag| tag % 97 != 0).collect();
            while !open.is_empty() {
                // Any of the first ones, so that some are overtaken.
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
        let mut settled = Settled::default();
        for tag in 2..200_000 {
            assert_eq!(join(&mut settled, &[tag]), 0);
            assert!(settled.beyond.len() <= MOST);
        }
        assert_eq!(join(&mut settled, &[1]), 0, "nobody knows any more what is behind it");
    }
}
