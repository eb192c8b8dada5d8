//! The traits that the receiving half of an adapter implements.
mod capabilities;
mod settlement;

use std::sync::Arc;

use async_trait::async_trait;

pub use self::capabilities::{DelaySupport, SourceCapabilities};
pub use self::settlement::{DeadLetter, Retry, Settlement};
use crate::{Delivery, Position, SourceError};

/// A source of deliveries: the receiving half of an adapter.
///
/// The guide [`docs::source`](crate::docs::source) shows how to write a source, and [`docs::brokers`](crate::docs::brokers)
/// maps seven brokers to the trait.
///
/// One task of the consumer owns the source and calls [`receive`](Self::receive) in a loop. Other tasks settle deliveries
/// meanwhile, through the [`settler`](Self::settler).
#[async_trait]
pub trait Source: Send + 'static {
    /// The data that settles a delivery, such as a delivery tag with its channel, a receipt handle, or the id of an entry.
    ///
    /// If a tag is dropped before its delivery is settled, the broker must deliver the message again.
    type Tag: Send + Sync + 'static;

    /// Returns the capabilities of this source. The consumer calls this method once, when the consumer is built.
    fn capabilities(&self) -> SourceCapabilities;

    /// Returns the settling half. The consumer calls this method once, before the first delivery, and uses the settler until
    /// after [`close`](Self::close).
    fn settler(&self) -> Arc<dyn Settle<Self::Tag>>;

    /// Waits for the next deliveries, and returns at least one and at most `room` of them in the order of their arrival.
    ///
    /// The method may return no deliveries when a wait of the source ends, such as a long poll. The consumer then calls
    /// again at once.
    ///
    /// `room` is never 0. In the first call `room` is the consumer's prefetch, which is the largest number of deliveries held
    /// at once. A source that the broker pushes to may set its broker's limit to that number. The visibility timeout of a
    /// delivery begins here: take no more from the broker than `room`, because buffered deliveries would time out.
    ///
    /// The source reconnects in this method. If reconnecting takes more than one or two attempts, return the error. The
    /// consumer counts the error, waits up to 30 s with a growing delay, and calls again. The delay grows until a delivery is
    /// settled. A [revocation](Received::Revoked) of deliveries of which none was settled counts as an error.
    ///
    /// # Errors
    /// After [`Transient`](crate::SourceErrorKind::Transient), the consumer calls again. Any other kind stops the consumer.
    ///
    /// # Cancellation
    /// The consumer drops the future only when the consumer stops, right before `close`. The broker must deliver again what
    /// was taken and not returned.
    async fn receive(&mut self, room: usize) -> Result<Received<Self::Tag>, SourceError>;

    /// Ends the subscription, and gives back deliveries that were taken from the broker but not returned by `receive`.
    ///
    /// The consumer still settles returned deliveries afterwards.
    ///
    /// # Cancellation
    /// The consumer drops the future after 1 s. The broker must then deliver the remaining messages again without further
    /// calls.
    async fn close(&mut self);
}

/// The settling half of an adapter.
///
/// Many tasks call the settler concurrently and in any order. An adapter whose broker commits only prefixes tracks settled
/// deliveries itself.
#[async_trait]
pub trait Settle<Tag>: Send + Sync + 'static {
    /// Settles one delivery, and returns once the result is certain.
    ///
    /// - `Ack`: the acknowledgement was written to the connection, or confirmed if the broker confirms acknowledgements. A
    ///   lost acknowledgement causes a duplicate, which the consumer then acknowledges.
    /// - `Retry`: the broker keeps the message until its delay ends. If the adapter publishes a copy, the copy is confirmed
    ///   and *routed* before the original is acknowledged.
    /// - `DeadLetter`: the dead letter is confirmed before the original is acknowledged. Body and headers equal those of the
    ///   delivery, byte for byte, and the adapter adds headers of its own.
    /// - `GiveBack`: the broker may deliver the message to other consumers now.
    ///
    /// The adapter emulates operations that its broker lacks, and documents them. The adapter never acknowledges a delivery
    /// instead.
    ///
    /// # Errors
    /// After [`Transient`](crate::SourceErrorKind::Transient), the consumer repeats the call for some seconds. After
    /// [`Gone`](crate::SourceErrorKind::Gone), the consumer does nothing more. After
    /// [`Refused`](crate::SourceErrorKind::Refused), the consumer dead-letters a retry, and retries a dead letter later. After
    /// [`Fatal`](crate::SourceErrorKind::Fatal), the consumer retries a dead letter later, so that the message is not stuck. It
    /// gives back any other delivery, drains, and returns the error. The consumer never acknowledges a delivery because another
    /// settlement failed.
    ///
    /// A copy is larger than its original. Check the size of a copy before it is sent, with room for what the broker adds. A dead
    /// letter that does not fit keeps only the necessary headers, or names the place of the original, and its reason states that.
    ///
    /// # Cancellation
    /// The consumer may drop the future at the end of the grace period. The delivery is then settled, or the broker delivers
    /// the message again.
    async fn settle(&self, delivery: &Delivery, tag: &Tag, settlement: &Settlement) -> Result<(), SourceError>;

    /// Extends the visibility timeout of these deliveries, counted from now.
    ///
    /// The consumer calls this method every [`keep_alive`](SourceCapabilities::keep_alive) with all unsettled deliveries,
    /// whether they run or wait. If the interval is `None`, the consumer never calls.
    ///
    /// # Errors
    /// The consumer logs and counts the error, and calls again after the interval. A delivery that is already lost is not an
    /// error.
    ///
    /// # Cancellation
    /// The consumer drops the future after one interval.
    async fn keep_alive(&self, held: &[&Tag]) -> Result<(), SourceError>;
}

/// The result of [`Source::receive`].
#[derive(Debug)]
#[non_exhaustive]
pub enum Received<Tag> {
    /// Messages, in the order of their arrival.
    Deliveries(Vec<(Delivery, Tag)>),
    /// Another consumer now owns all unsettled deliveries [in](Position::lies_in) these areas, such as after a rebalance.
    ///
    /// The consumer drops waiting deliveries and settles none of them. Running handlers continue, so that their results are
    /// recorded and the next consumer finds a duplicate.
    Revoked(Vec<Position>),
}
