//! What is done with a delivery: decode it, name it, run it.
mod annotated;
mod batched;
mod keyed;
mod service;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::BoxFuture;
use idempotent_core::{Executor, Identity, KeyError, Policy, Redelivery, RunSummary, Scene};
use tokio::sync::Notify;

pub(crate) use self::annotated::Calling;
pub(crate) use self::batched::Batching;
pub(crate) use self::keyed::{Claiming, Naming};
pub use self::service::service;
use crate::{Decode, Delivery, HandlerResult, KeyFrom, Message, SetupError, Undecodable};

/// What a consumer does with each delivery; without its types.
pub(crate) trait Work: Send + Sync {
    /// Everything that comes before the store is asked: decoded, and in which lane it runs.
    fn prepare(&self, desk: &Desk, delivery: Arc<Delivery>) -> Result<Prepared, Unfit>;

    /// What goes over the executor's policy, and whether it is in force.
    fn policy(&self) -> Option<Policy>;

    /// Whether it fits a consumer that runs so many side by side.
    fn check(&self, _concurrency: usize) -> Result<(), SetupError> {
        Ok(())
    }

    /// Itself, or where it keeps something while it runs, one of its kind that shares nothing.
    fn for_one_consumer(self: Arc<Self>) -> Arc<dyn Work>;
}

/// Whose work it is.
#[derive(Clone, Debug)]
pub(crate) struct Desk {
    pub(crate) executor: Executor,
    pub(crate) group: Arc<str>,
    /// What lease and retention have to fit.
    pub(crate) redelivery: Option<Arc<Redelivery>>,
}

/// A delivery ready to be run.
pub(crate) struct Prepared {
    /// Deliveries of one lane run one after the other.
    pub(crate) lane: Option<u128>,
    pub(crate) run: Run,
}

pub(crate) type Run = Box<dyn FnOnce(Begun) -> BoxFuture<'static, Ended> + Send>;

/// How far a delivery's run has come.
#[derive(Clone, Debug, Default)]
pub(crate) struct Begun(Arc<Progress>);

#[derive(Debug, Default)]
struct Progress {
    begun: AtomicBool,
    claimed: Notify,
}

impl Begun {
    /// The handler begins. Until then nothing is lost by dropping the run; from here on its effect may have happened.
    pub(crate) fn set(&self) {
        self.0.begun.store(true, Ordering::SeqCst);
    }

    /// The handler begins, because the store has granted its claim.
    pub(crate) fn set_claimed(&self) {
        self.set();
        self.0.claimed.notify_one();
    }

    pub(crate) fn is_set(&self) -> bool {
        self.0.begun.load(Ordering::SeqCst)
    }

    /// Ends when the claim was granted, where that is to be seen.
    pub(crate) async fn claimed(&self) {
        self.0.claimed.notified().await;
    }
}

/// What running it came to.
#[derive(Debug)]
pub(crate) struct Ended {
    /// Of the outermost run; `None` if there was none.
    pub(crate) captured: Option<RunSummary>,
    /// What the handler's return value asks for.
    pub(crate) verdict: HandlerResult,
    /// The words of a rejection, where they are to be had.
    pub(crate) rejection: Option<String>,
}

/// A delivery that can never be run.
#[derive(Debug)]
pub(crate) enum Unfit {
    Undecodable(Undecodable),
    Unkeyed(KeyError),
}

/// The first half of all handling: what the body is, and what runs in order.
pub(crate) struct Reading<T> {
    pub(crate) decode: Arc<dyn Decode<T>>,
    pub(crate) order: Option<KeyFrom<T>>,
}

impl<T: 'static> Reading<T> {
    /// The decoder and the keys are the user's code: a panic in them must not take the consumer down, nor make the
    /// message come again for ever.
    pub(crate) fn read(&self, desk: &Desk, delivery: Arc<Delivery>) -> Result<(Message<T>, Option<u128>), Unfit> {
        guarded(|| {
            let body = self.decode.decode(&delivery).map_err(Unfit::Undecodable)?;
            let message = Message { body, delivery };
            let lane = self.order.as_ref().map(|order| desk.lane(order, &message)).transpose()?;
            Ok((message, lane))
        })
    }
}

pub(crate) fn guarded<R>(read: impl FnOnce() -> Result<R, Unfit>) -> Result<R, Unfit> {
    catch_unwind(AssertUnwindSafe(read))
        .unwrap_or_else(|_| Err(Unfit::Undecodable(Undecodable("its decoder or key panicked".to_owned()))))
}

impl Desk {
    pub(crate) fn identity<T>(&self, key: &KeyFrom<T>, message: &Message<T>) -> Identity {
        Identity::new(Scene::Mq, self.group.to_string(), &key.of(message)).described(key.what())
    }

    fn lane<T>(&self, order: &KeyFrom<T>, message: &Message<T>) -> Result<u128, Unfit> {
        let key = self.identity(order, message).key(self.executor.namespace()).map_err(Unfit::Unkeyed)?;
        Ok(key.hash())
    }
}
