//! A consumer that a law controls step by step, and waits for expected states.
#![allow(clippy::panic, clippy::unwrap_used, reason = "parts of laws, which are test code")]
use std::collections::VecDeque;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use idempotent_core::Timestamp;
use idempotent_mq::{
    DeadLetter, Delivery, Headers, Received, Redrive, Retry, Settle, Settlement, Source, SourceError, SourceErrorKind,
};
use tokio::time::{Instant, sleep, timeout};

use super::{Broker, Message};

type TagOf<B> = <<B as Broker>::Source as Source>::Tag;
/// A delivery, and the tag to settle it.
pub(super) type Held<B> = (Delivery, TagOf<B>);

/// A source that a law controls step by step.
pub(super) struct Hand<B: Broker> {
    pub(super) source: B::Source,
    pub(super) settler: Arc<dyn Settle<TagOf<B>>>,
    patience: Duration,
    /// Received deliveries that no law has taken yet.
    ready: VecDeque<Held<B>>,
}

/// The number of deliveries that the consumer may hold.
const PREFETCH: usize = 10;
/// The pause between two polls.
pub(super) const PAUSE: Duration = Duration::from_millis(20);

impl<B: Broker> Hand<B> {
    pub(super) async fn of(broker: &B) -> Self {
        let source = broker.source().await;
        let (settler, patience) = (source.settler(), broker.limits().patience);
        Self { source, settler, patience, ready: VecDeque::new() }
    }

    pub(super) async fn next(&mut self) -> Held<B> {
        if self.ready.is_empty() {
            let taken = self.take(PREFETCH).await;
            self.ready.extend(taken);
        }
        self.ready.pop_front().unwrap()
    }

    /// Returns the deliveries of the next `receive`. The adapter must repair a broken connection.
    pub(super) async fn take(&mut self, room: usize) -> Vec<Held<B>> {
        let end = Instant::now() + self.patience;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            match timeout(left, self.source.receive(room)).await {
                Err(_) => panic!("no delivery came within {:?}", self.patience),
                Ok(Ok(Received::Deliveries(taken))) if !taken.is_empty() => return taken,
                Ok(Err(error)) if error.kind() != SourceErrorKind::Transient => panic!("receive ended: {error}"),
                Ok(_) => sleep(PAUSE).await,
            }
        }
    }

    /// Returns the next delivery, which must be this message.
    pub(super) async fn expect(&mut self, id: &str) -> Held<B> {
        let held = self.next().await;
        assert_eq!(held.0.id.as_deref(), Some(id), "another message came");
        held
    }

    /// Returns the deliveries of these messages, in this order. It asks for no more, so that no later message is under way.
    pub(super) async fn all(&mut self, ids: &[&str]) -> Vec<Held<B>> {
        let mut held = Vec::new();
        while held.len() < ids.len() {
            held.extend(self.take(ids.len() - held.len()).await);
        }
        held.sort_by_key(|(delivery, _)| ids.iter().position(|id| delivery.id.as_deref() == Some(*id)));
        let came: Vec<_> = held.iter().filter_map(|(delivery, _)| delivery.id.as_deref()).collect();
        assert_eq!(came, ids, "other messages came");
        held
    }

    /// Settles a delivery like a consumer: temporary failures are retried.
    pub(super) async fn settle(&self, held: &Held<B>, how: &Settlement) -> Result<(), SourceError> {
        let end = Instant::now() + self.patience;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let settled = timeout(left, self.settler.settle(&held.0, &held.1, how)).await;
            match settled.unwrap_or_else(|_| panic!("`{}` was not done within {:?}", how.name(), self.patience)) {
                Err(error) if error.kind() == SourceErrorKind::Transient => sleep(PAUSE).await,
                settled => return settled,
            }
        }
    }

    pub(super) async fn done(&self, held: Held<B>, how: Settlement) {
        let settled = self.settle(&held, &how).await;
        settled.unwrap_or_else(|error| panic!("`{}` of a held delivery was refused: {error}", how.name()));
    }

    pub(super) async fn ack(&self, held: Held<B>) {
        self.done(held, Settlement::Ack).await;
    }

    pub(super) async fn close(&mut self) {
        let closed = timeout(self.patience, self.source.close()).await;
        closed.unwrap_or_else(|_| panic!("the source did not close within {:?}", self.patience));
    }

    /// Verifies that the queue is empty, and that the next published message is the next delivery.
    pub(super) async fn leave_nothing(mut self, broker: &B) {
        emptied(broker).await;
        self.close().await;
        drop(self);
        broker.publish(Message::new("the last", "")).await;
        let mut other = Self::of(broker).await;
        let last = other.expect("the last").await;
        other.ack(last).await;
        emptied(broker).await;
    }
}

/// Waits until the queue is empty.
pub(super) async fn emptied<B: Broker>(broker: &B) {
    let what = "the queue is empty: nothing ready, delayed or held";
    until(broker, what, async || broker.is_empty().await.then_some(())).await;
}

pub(super) async fn until<B: Broker, T>(broker: &B, what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let patience = broker.limits().patience;
    let end = Instant::now() + patience;
    loop {
        if let Some(found) = ask().await {
            return found;
        }
        assert!(Instant::now() < end, "not within {patience:?}: {what}");
        sleep(PAUSE).await;
    }
}

/// Returns the dead letters when there are `letters` of them.
pub(super) async fn aside<B: Broker>(broker: &B, letters: usize) -> Vec<(Message, DeadLetter)> {
    let what = "a confirmed dead letter is in the dead letters";
    let found = until(broker, what, async || Some(broker.dead_letters().await).filter(|found| found.len() >= letters));
    let found = found.await;
    assert_eq!(found.len(), letters, "too many dead letters");
    found
}

/// Puts all dead letters back, like an operator.
pub(super) async fn put_back<B: Broker>(broker: &B) {
    let mut letters = broker.letters();
    let redriven = Redrive::new().run(&mut *letters).await;
    assert!(redriven.failed.is_none() && redriven.unread == 0, "{redriven:?}");
    letters.close().await;
}

pub(super) async fn within<B: Broker, F: Future>(broker: &B, what: &str, future: F) -> F::Output {
    let patience = broker.limits().patience;
    timeout(patience, future).await.unwrap_or_else(|_| panic!("not within {patience:?}: {what}"))
}

/// A time in µs since 1970 with all its digits, so that a rounded mark is noticed.
pub(super) const FIRST_AT: Timestamp = Timestamp(1_700_000_000_123_457);

/// Returns a retry after the broker's delay, with this attempt.
pub(super) fn retry<B: Broker>(broker: &B, attempt: u32) -> Settlement {
    let mut retry = Retry::after(broker.limits().delay, FIRST_AT);
    retry.attempt = attempt;
    Settlement::Retry(retry)
}

/// Returns a message with a body and headers that are easily damaged.
pub(super) fn rich(id: &str) -> Message {
    let body: Vec<u8> = (0..=255).rev().chain([0, 13, 10]).collect();
    Message::new(id, body).header("trace", "00-abc").header("grö ße", [0, 255, 13, 10]).header("nothing", "")
}

pub(super) fn as_sent(delivery: &Delivery, sent: &Message) {
    assert_eq!(delivery.id.as_deref(), Some(sent.id.as_str()), "the id is another");
    assert!(delivery.body == sent.body, "the body is another: {} of {} bytes", delivery.body.len(), sent.body.len());
    // If the broker stores the id in a header, the delivery may show it.
    let is_id = |name: &str, value: &[u8]| value == sent.id.as_bytes() && sent.headers.first(name).is_none();
    let mut shown = by_name(&delivery.headers);
    shown.retain(|(name, value)| !is_id(name, value));
    assert_eq!(shown, by_name(&sent.headers), "the headers are others");
}

/// Sorts headers by name. The values of one name keep their order.
pub(super) fn by_name(headers: &Headers) -> Vec<(&str, &[u8])> {
    let mut headers: Vec<_> = headers.iter().collect();
    headers.sort_by_key(|(name, _)| *name);
    headers
}
