//! From a delivery to a handler, step by step.
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use idempotent_core::{BatchItem, Policy};
use serde::de::DeserializeOwned;

use crate::decode::Json;
use crate::work::{Batching, Calling, Claiming, Naming, Reading, Work};
use crate::{Decode, IntoHandlerResult, KeyFrom, Message, Undecodable};

/// How a consumer reads its deliveries. Then say by what they are told apart, and what handles them:
///
/// | the handler | say |
/// |---|---|
/// | any function; the consumer claims the key | [`keyed`](Self::keyed)`(…)`, [`run`](KeyedMessages::run)`(…)` |
/// | takes many messages at once | [`keyed`](Self::keyed)`(…)`, [`run_batch`](KeyedMessages::run_batch)`(…)` |
/// | calls functions with `#[idempotent(scene = mq, …)]` | [`annotated`](Self::annotated)`(…)` |
/// | a tower service | as one of these two, by [`service`](crate::service) |
/// | may run for every duplicate | [`unprotected`](Self::unprotected)`(…)` |
#[must_use]
pub struct Messages<T> {
    decode: Arc<dyn Decode<T>>,
    order: Option<KeyFrom<T>>,
}

impl<T: DeserializeOwned + Send + 'static> Messages<T> {
    /// Bodies of JSON, read by serde.
    pub fn json() -> Self {
        Self::decoded(Json::new())
    }
}

impl Messages<()> {
    /// Bodies that the handler reads by itself: [`Delivery::body`](crate::Delivery::body) has them.
    pub fn raw() -> Self {
        Self::decoded(|_: &crate::Delivery| Ok::<(), Undecodable>(()))
    }
}

impl<T: Send + 'static> Messages<T> {
    /// Bodies read by a function or decoder of yours.
    pub fn decoded(decode: impl Decode<T>) -> Self {
        Self { decode: Arc::new(decode), order: None }
    }

    /// Messages with the same key of this kind run one after the other in this process, in the order they arrived;
    /// others go on beside them. A message without such a key is put aside.
    ///
    /// Those that wait for their turn are held, so one slow key can fill the prefetch. A message that is retried comes
    /// back behind those that came after it, unless the source [keeps order](crate::SourceCapabilities::keeps_order).
    ///
    /// # Default
    /// No order: as many side by side as the consumer's concurrency allows
    pub fn ordered_by(mut self, key: KeyFrom<T>) -> Self {
        self.order = Some(key);
        self
    }

    /// The consumer claims this key before it runs the handler; the scope is the consumer's group.
    pub fn keyed(self, key: KeyFrom<T>) -> KeyedMessages<T> {
        KeyedMessages { messages: self, key, policy: Policy::new(), fingerprint: false }
    }

    /// A handler that calls functions with `#[idempotent(scene = mq, …)]`. They find the consumer's executor in scope,
    /// and how they end settles the message, whatever the handler makes of it.
    ///
    /// The consumer sees calls in the handler's own task. The consumer also sees calls in tasks that
    /// [`Executor::detach`](idempotent_core::Executor::detach) spawns, if the handler awaits those tasks. A task from `tokio::spawn`
    /// has no executor in scope, and the consumer does not see the task end. If the handler then returns `Ok`, the consumer
    /// acknowledges the message, although no function may have run.
    ///
    /// The key, the scope and the policy are those of the attribute: the consumer's group is no part of them. Where two
    /// groups run one function on the same messages give each a scope of its own.
    ///
    /// The log warns once if a handler ends without a claim that the consumer sees. Either the attribute is missing, or a spawned
    /// task called the function.
    pub fn annotated<F, Fut>(self, handler: F) -> MessageHandler
    where
        F: Fn(Message<T>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output: IntoHandlerResult> + Send + 'static,
    {
        self.calling(handler, Some(Arc::default()))
    }

    /// A handler whose effect may happen twice: it runs for every delivery. What it returns settles the message. There is
    /// no lease: nothing ends a handler that hangs, and it keeps its place.
    pub fn unprotected<F, Fut>(self, handler: F) -> MessageHandler
    where
        F: Fn(Message<T>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output: IntoHandlerResult> + Send + 'static,
    {
        self.calling(handler, None)
    }

    fn calling<F, Fut>(self, handler: F, told: Option<Arc<AtomicBool>>) -> MessageHandler
    where
        F: Fn(Message<T>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output: IntoHandlerResult> + Send + 'static,
    {
        MessageHandler(Arc::new(Calling { reading: self.reading(), handler: Arc::new(handler), told }))
    }

    fn reading(self) -> Reading<T> {
        Reading { decode: self.decode, order: self.order }
    }
}

/// Messages that the consumer tells apart by their key.
#[must_use]
pub struct KeyedMessages<T> {
    messages: Messages<T>,
    key: KeyFrom<T>,
    policy: Policy,
    fingerprint: bool,
}

impl<T: Send + 'static> KeyedMessages<T> {
    /// Goes over the executor's policy for the scene `mq`.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// A message with a known key and another body is put aside: its producer uses one key for two things. Not for
    /// producers that write a time or an attempt into a body that they send again.
    ///
    /// # Default
    /// The body is not compared
    pub fn fingerprint_body(mut self) -> Self {
        self.fingerprint = true;
        self
    }

    /// The handler.
    pub fn run<F, Fut>(self, handler: F) -> MessageHandler
    where
        F: Fn(Message<T>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output: IntoHandlerResult> + Send + 'static,
    {
        let (reading, naming) = self.into_parts();
        MessageHandler(Arc::new(Claiming { reading, naming, handler: Arc::new(handler) }))
    }

    /// A handler of at most so many messages at once: one `INSERT` for many rows, one call of a bulk API. It is given
    /// those whose key is free, each with its lease, and answers for each, in order; each is claimed, settled and counted
    /// by itself. Duplicates are not among them, and where there are only duplicates it is not called.
    ///
    /// Nothing waits for a batch to fill: what arrives while one runs makes the next, and one that is full runs beside
    /// it. Each message takes a place of the [concurrency](crate::ConsumerBuilder::concurrency), which must not be below
    /// `most`.
    ///
    /// Answers for fewer or more messages than it was given, or a panic, fail all of them: each comes again, and with it
    /// whatever others it then meets. A handler that knows which one is to blame says so by its answers.
    ///
    /// ```
    /// use idempotent_mq::{KeyFrom, Messages, HandlerResult};
    ///
    /// let handling = Messages::raw().keyed(KeyFrom::message_id()).run_batch(64, async |batch: Vec<_>| {
    ///     let rows: Vec<_> = batch.iter().map(|given| &given.item.delivery.body).collect();
    ///     // … insert them …
    ///     vec![HandlerResult::Done; rows.len()]
    /// });
    /// # let _ = handling;
    /// ```
    pub fn run_batch<F, Fut, A>(self, most: usize, handler: F) -> MessageHandler
    where
        F: Fn(Vec<BatchItem<Message<T>>>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Vec<A>> + Send + 'static,
        A: IntoHandlerResult + 'static,
    {
        let (reading, naming) = self.into_parts();
        MessageHandler(Arc::new(Batching::new(reading, naming, most, handler)))
    }

    fn into_parts(self) -> (Reading<T>, Naming<T>) {
        let Self { messages, key, policy, fingerprint } = self;
        (messages.reading(), Naming { key, policy, fingerprint })
    }
}

/// What is done with each delivery: made by [`Messages`], given to [`ConsumerBuilder::build`](crate::ConsumerBuilder::build).
#[derive(Clone)]
#[must_use]
pub struct MessageHandler(pub(crate) Arc<dyn Work>);

impl<T> fmt::Debug for Messages<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Messages").field("order", &self.order).finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for KeyedMessages<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyedMessages").field("key", &self.key).field("policy", &self.policy).finish_non_exhaustive()
    }
}

impl fmt::Debug for MessageHandler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MessageHandler")
    }
}
