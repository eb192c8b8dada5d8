//! Handlers of messages: decoding, keys, and the run of one delivery.
mod annotated;
mod batched;
mod decode;
mod keyed;
mod messages;
mod result;
mod service;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use futures_util::future::BoxFuture;
use idempotent_core::__private::SummarySlot;
use idempotent_core::__private::admission::ClaimAdmission;
use idempotent_core::{DeliveryContext, Executor, Identity, KeyError, Policy, RunSummary};
use tokio::sync::Semaphore;

pub(crate) use self::annotated::AnnotatedHandler;
pub(crate) use self::batched::BatchHandler;
pub use self::decode::Decode;
pub(crate) use self::keyed::{KeySettings, KeyedHandler};
pub use self::messages::{KeyedMessages, MessageHandler, Messages};
pub use self::result::{HandlerResult, IntoHandlerResult};
pub use self::service::service;
use crate::{Delivery, KeyFrom, Message, SetupError, Undecodable};

/// A handler of deliveries with its types erased.
pub(crate) trait DeliveryHandler: Send + Sync {
    /// Decodes a delivery and determines its lane, before any request to the store.
    fn prepare(
        &self,
        context: &ConsumerContext,
        delivery: Arc<Delivery>,
        progress: Arc<dyn RunProgress>,
    ) -> Result<PreparedRun, UnusableDelivery>;

    /// Returns the handler's own policy, or `None` if the consumer cannot know it.
    fn policy(&self) -> Option<Policy>;

    /// Returns true if the runs of this handler wait for a permit of [`ConsumerContext::turns`] after their claim.
    fn claims_ahead(&self) -> bool {
        false
    }

    /// Checks the handler against the concurrency of its consumer.
    fn check(&self, _concurrency: usize) -> Result<(), SetupError> {
        Ok(())
    }

    /// Returns a handler for one consumer. A handler with state between runs returns a copy that shares nothing.
    fn for_one_consumer(self: Arc<Self>) -> Arc<dyn DeliveryHandler>;
}

/// The parts of a consumer that its handlers need.
#[derive(Clone, Debug)]
pub(crate) struct ConsumerContext {
    pub(crate) executor: Executor,
    pub(crate) group: Arc<str>,
    /// The facts about all deliveries of this consumer.
    pub(crate) known: DeliveryContext,
    /// The facts for handlers whose keys the consumer claims.
    pub(crate) claims: DeliveryContext,
    /// A permit for each handler that may run, if the consumer claims ahead.
    pub(crate) turns: Option<Arc<Semaphore>>,
}

/// A decoded delivery that is ready to run.
pub(crate) struct PreparedRun {
    /// The lane, whose deliveries run one at a time. `None` if order does not matter.
    pub(crate) lane: Option<u128>,
    pub(crate) run: HandlerRun,
}

/// A run, which does nothing before its first poll by a worker.
pub(crate) type HandlerRun = BoxFuture<'static, HandlerEnd>;

/// The progress of a run, as its worker has to know it.
pub(crate) trait RunProgress: SummarySlot {
    /// Notes that the handler begins. A run that is dropped earlier had no effect. Later, its effect may have happened.
    fn begin(&self);

    /// Notes that the handler begins because the store granted its claim.
    fn begin_claimed(&self);
}

/// The end of a run.
#[derive(Debug)]
pub(crate) struct HandlerEnd {
    /// The summary of the outermost run, or `None` without a run.
    pub(crate) captured: Option<RunSummary>,
    /// The result that the handler returned.
    pub(crate) verdict: HandlerResult,
    /// The text of a rejection, if known.
    pub(crate) rejection: Option<String>,
}

/// The reason why a delivery can never run.
#[derive(Debug)]
pub(crate) enum UnusableDelivery {
    Undecodable(Undecodable),
    Unkeyed(KeyError),
}

/// The decoder of bodies, and the key that orders messages.
pub(crate) struct MessageDecoder<T> {
    pub(crate) decode: Arc<dyn Decode<T>>,
    pub(crate) order: Option<KeyFrom<T>>,
}

impl<T: 'static> MessageDecoder<T> {
    /// Decodes a delivery. A panic in the user's decoder or key neither stops the consumer nor causes endless redeliveries.
    pub(crate) fn read(
        &self,
        context: &ConsumerContext,
        delivery: Arc<Delivery>,
    ) -> Result<(Message<T>, Option<u128>), UnusableDelivery> {
        guarded(|| {
            let body = self.decode.decode(&delivery).map_err(UnusableDelivery::Undecodable)?;
            let message = Message { body, delivery };
            let lane = self.order.as_ref().map(|order| context.lane(order, &message)).transpose()?;
            Ok((message, lane))
        })
    }
}

pub(crate) fn guarded<R>(read: impl FnOnce() -> Result<R, UnusableDelivery>) -> Result<R, UnusableDelivery> {
    catch_unwind(AssertUnwindSafe(read)).unwrap_or_else(|_| {
        Err(UnusableDelivery::Undecodable(Undecodable("the decoder or the key function panicked".to_owned())))
    })
}

impl ConsumerContext {
    pub(crate) fn admit_by(&mut self, admission: Arc<dyn ClaimAdmission>) {
        self.known = self.known.clone().admission(admission.clone());
        self.claims = self.claims.clone().admission(admission);
    }

    pub(crate) fn identity<T>(&self, key: &KeyFrom<T>, message: &Message<T>) -> Identity {
        Identity::__of_message(self.group.clone(), key.of(message), key.what())
    }

    fn lane<T>(&self, order: &KeyFrom<T>, message: &Message<T>) -> Result<u128, UnusableDelivery> {
        let key = self.identity(order, message).key(self.executor.namespace()).map_err(UnusableDelivery::Unkeyed)?;
        Ok(key.hash())
    }
}
