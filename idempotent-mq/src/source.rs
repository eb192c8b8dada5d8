//! What an adapter implements.
use std::sync::Arc;

use async_trait::async_trait;

use crate::{Delivery, Position, Settlement, SourceCapabilities, SourceError};

/// Where deliveries come from: the pulling half of an adapter. [`docs::source`](crate::docs::source) says how to write
/// one, [`docs::brokers`](crate::docs::brokers) how five brokers fit.
///
/// One task of the consumer owns it and calls [`receive`](Self::receive) again and again; settling happens meanwhile, in
/// other tasks, through [`settler`](Self::settler).
#[async_trait]
pub trait Source: Send + 'static {
    /// What settling a delivery takes: a delivery tag with its channel, a receipt handle, an entry's id, the sending end
    /// of a channel on which a listener's thread waits. Dropped unsettled, the delivery must come again.
    type Tag: Send + Sync + 'static;

    /// What this source can do. Asked when the consumer is built.
    fn capabilities(&self) -> SourceCapabilities;

    /// The settling half. Asked once, before the first delivery; used until after [`close`](Self::close).
    fn settler(&self) -> Arc<dyn Settle<Self::Tag>>;

    /// The next deliveries, in the order they arrived, at least one and at most `room`; or none, when this source's own
    /// wait is over (a long poll's end): it is then called again at once. Waits until there is something.
    ///
    /// `room` is never 0. The first time it is the consumer's prefetch, the most that is ever held at once: a source
    /// that is pushed to may set its broker's limit by that. A delivery's time to be settled begins here, so take from
    /// the broker what is asked for, and keep no stock that runs out of time.
    ///
    /// A connection that broke is made again in here. If that takes longer than a try or two, return the error: the
    /// consumer counts it, waits, longer each time, up to 30 s, and calls again.
    ///
    /// # Errors
    /// [`Transient`](crate::SourceErrorKind::Transient): it is called again. Any other kind ends the consumer.
    ///
    /// # Cancellation
    /// Dropped only when the consumer stops, right before `close`: what was taken from the broker and not handed over
    /// must come again.
    async fn receive(&mut self, room: usize) -> Result<Received<Self::Tag>, SourceError>;

    /// No more deliveries, for good: ends the subscription, and gives back what was taken and not handed over. What was
    /// handed over is still settled afterwards.
    ///
    /// # Cancellation
    /// Given up after a second: what it leaves behind must come again by itself.
    async fn close(&mut self);
}

/// The settling half of an adapter. Called from many tasks at once and in any order; an adapter whose broker can only
/// commit prefixes keeps account of them itself.
#[async_trait]
pub trait Settle<Tag>: Send + Sync + 'static {
    /// Settles one delivery. Returns only when that is certain:
    ///
    /// - `Ack`: the acknowledgement was handed to the connection, or confirmed where the broker does that. One that gets
    ///   lost makes a duplicate, which is then acknowledged.
    /// - `Retry`: the broker has taken over the delay. Where that means to publish a copy: the copy is confirmed, and
    ///   *routed*, before the original is acknowledged.
    /// - `DeadLetter`: the dead letter is confirmed before the original is acknowledged; never the other way round. Body
    ///   and headers are those of the delivery, byte for byte, with marks beside them.
    /// - `GiveBack`: the broker may deliver it to others now.
    ///
    /// What the broker cannot do the adapter makes up for, and says so in its docs. It never acknowledges instead.
    ///
    /// # Errors
    /// [`Transient`](crate::SourceErrorKind::Transient): it is asked again, for some seconds.
    /// [`Gone`](crate::SourceErrorKind::Gone): nothing more is done. [`Fatal`](crate::SourceErrorKind::Fatal): a dead
    /// letter is turned into a retry, so that the message is not stuck; anything else is given back, and the consumer ends
    /// with that error once it has drained. In no case is it acknowledged for want of something better.
    ///
    /// # Cancellation
    /// May be dropped at the end of a drain's grace. Then it has happened, or the delivery comes again.
    async fn settle(&self, delivery: &Delivery, tag: &Tag, settlement: &Settlement) -> Result<(), SourceError>;

    /// Puts off the time at which the broker takes these back, counted from now. Called every
    /// [`keep_alive`](SourceCapabilities::keep_alive) with all that is held, whether it runs or waits; never where that is
    /// `None`.
    ///
    /// # Errors
    /// Logged and counted; the next call comes at its time. Those that are lost already are no error.
    ///
    /// # Cancellation
    /// Given up after one interval.
    async fn keep_alive(&self, held: &[&Tag]) -> Result<(), SourceError>;
}

/// What [`Source::receive`] brings.
#[derive(Debug)]
#[non_exhaustive]
pub enum Received<Tag> {
    /// Messages, in the order they arrived.
    Deliveries(Vec<(Delivery, Tag)>),
    /// All deliveries handed over so far that [lie in](Position::lies_in) one of these areas belong to somebody else
    /// now, as after a rebalance. Those that wait are dropped, those that run go on, so that what they do is recorded
    /// and whoever gets the message next meets a duplicate; none of them is settled.
    Revoked(Vec<Position>),
}
