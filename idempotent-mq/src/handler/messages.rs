//! Builders of message handlers.
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use idempotent_core::{BatchItem, Policy};
use serde::de::DeserializeOwned;

use crate::handler::decode::Json;
use crate::handler::{AnnotatedHandler, BatchHandler, DeliveryHandler, KeySettings, KeyedHandler, MessageDecoder};
use crate::{Decode, IntoHandlerResult, KeyFrom, Message, Undecodable};

/// A builder of message handlers: sets how bodies are decoded, and then the key and the handler.
///
/// | the handler | method |
/// |---|---|
/// | any function; the consumer claims the key | [`keyed`](Self::keyed)`(…)`, [`run`](KeyedMessages::run)`(…)` |
/// | a function of many messages at once | [`keyed`](Self::keyed)`(…)`, [`run_batch`](KeyedMessages::run_batch)`(…)` |
/// | calls functions with `#[idempotent(scene = mq, …)]` | [`annotated`](Self::annotated)`(…)` |
/// | a tower service | as one of these two, by [`service`](crate::service) |
/// | a function that may run for every duplicate | [`unprotected`](Self::unprotected)`(…)` |
#[must_use]
pub struct Messages<T> {
    decode: Arc<dyn Decode<T>>,
    order: Option<KeyFrom<T>>,
}

impl<T: DeserializeOwned + Send + 'static> Messages<T> {
    /// Decodes bodies as JSON, by serde.
    pub fn json() -> Self {
        Self::decoded(Json::new())
    }
}

impl Messages<()> {
    /// Leaves bodies undecoded. The handler reads [`Delivery::body`](crate::Delivery::body).
    pub fn raw() -> Self {
        Self::decoded(|_: &crate::Delivery| Ok::<(), Undecodable>(()))
    }
}

impl<T: Send + 'static> Messages<T> {
    /// Decodes bodies by a function or a custom decoder.
    pub fn decoded(decode: impl Decode<T>) -> Self {
        Self { decode: Arc::new(decode), order: None }
    }

    /// Runs messages with the same ordering key one at a time in this process, in the order of their arrival. Messages with
    /// other keys run concurrently. A message without an ordering key is dead-lettered.
    ///
    /// Waiting messages count towards the prefetch, so one slow key can fill it. A retried message arrives after later messages,
    /// unless the source [keeps order](crate::SourceCapabilities::keeps_order).
    ///
    /// # Default
    /// No order: messages run concurrently
    pub fn ordered_by(mut self, key: KeyFrom<T>) -> Self {
        self.order = Some(key);
        self
    }

    /// Makes the consumer claim this key before it runs the handler. The scope is the consumer's group.
    pub fn keyed(self, key: KeyFrom<T>) -> KeyedMessages<T> {
        KeyedMessages { messages: self, key, policy: Policy::new(), fingerprint: false }
    }

    /// Creates a handler that calls functions with `#[idempotent(scene = mq, …)]`. These functions use the consumer's executor,
    /// and their outcomes settle the message, whatever the handler returns.
    ///
    /// The consumer sees calls in the handler's own task. The consumer also sees calls in tasks that
    /// [`Executor::detach`](idempotent_core::Executor::detach) spawns, if the handler awaits those tasks. A task from `tokio::spawn`
    /// has no executor in scope, and the consumer does not see the task end. If the handler then returns `Ok`, the consumer
    /// acknowledges the message, although no function may have run.
    ///
    /// Key, scope and policy are those of the attribute, without the consumer's group. If two groups run one function on the
    /// same messages, give each group its own scope.
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

    /// Creates a handler whose effect may happen twice: the handler runs for every delivery, and its return value settles the
    /// message. There is no lease, so a handler that hangs occupies its slot until it ends.
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
        MessageHandler(Arc::new(AnnotatedHandler { reading: self.reading(), handler: Arc::new(handler), told }))
    }

    fn reading(self) -> MessageDecoder<T> {
        MessageDecoder { decode: self.decode, order: self.order }
    }
}

/// A builder of handlers whose keys the consumer claims.
#[must_use]
pub struct KeyedMessages<T> {
    messages: Messages<T>,
    key: KeyFrom<T>,
    policy: Policy,
    fingerprint: bool,
}

impl<T: Send + 'static> KeyedMessages<T> {
    /// Sets a policy that overrides the executor's policy for the scene `mq`.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// Dead-letters a message with a known key and a different body, because its producer uses one key for two messages. Do not
    /// use this with producers that write a time or an attempt number into a body that they resend.
    ///
    /// # Default
    /// Bodies are not compared
    pub fn fingerprint_body(mut self) -> Self {
        self.fingerprint = true;
        self
    }

    /// Creates the handler from a function of one message.
    pub fn run<F, Fut>(self, handler: F) -> MessageHandler
    where
        F: Fn(Message<T>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output: IntoHandlerResult> + Send + 'static,
    {
        let (reading, naming) = self.into_parts();
        MessageHandler(Arc::new(KeyedHandler { reading, naming, handler: Arc::new(handler) }))
    }

    /// Creates the handler from a function of up to `most` messages, such as one `INSERT` of many rows or a call of a bulk API.
    ///
    /// The function gets the messages whose keys are free, each with its lease, and returns one result for each in the same
    /// order. The consumer claims, settles and counts each message separately. A batch contains no duplicates, and the function is
    /// not called for duplicates only.
    ///
    /// A batch does not wait until it is full. Messages that arrive during a batch form the next batch, and a full batch runs
    /// concurrently. Each message counts towards the [concurrency](crate::ConsumerBuilder::concurrency), which must be at least
    /// `most`.
    ///
    /// If the function panics or returns another number of results, all messages of the batch fail and are retried, possibly in
    /// other batches. To fail single messages, return their results.
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
        MessageHandler(Arc::new(BatchHandler::new(reading, naming, most, handler)))
    }

    fn into_parts(self) -> (MessageDecoder<T>, KeySettings<T>) {
        let Self { messages, key, policy, fingerprint } = self;
        (messages.reading(), KeySettings { key, policy, fingerprint })
    }
}

/// A handler of messages with its decoder and key, created by [`Messages`] for
/// [`ConsumerBuilder::build`](crate::ConsumerBuilder::build).
#[derive(Clone)]
#[must_use]
pub struct MessageHandler(pub(crate) Arc<dyn DeliveryHandler>);

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
