//! A queue in memory.
mod client;
mod dead_letters;
mod messages;
mod publisher;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use idempotent_core::{Clock, SystemClock};
use tokio::sync::Notify;

pub use self::client::{MemorySource, MemoryTag};
pub use self::dead_letters::MemoryDeadLetters;
use self::messages::{LONGEST, Messages};
use crate::{DeadLetter, Delivery, Position};

/// A queue in memory, with delayed retries and dead letters, for first programs and for tests of handlers.
///
/// The queue is also a publisher ([`Publish`](crate::Publish)) of messages whose topic is its name, and
/// [`MemoryDeadLetters`] redrives its dead letters.
///
/// Clones share one queue. The messages end with the process. Several [sources](Self::source) share the messages, like
/// several consumers of one queue of a broker.
///
/// ```
/// use idempotent_core::{Executor, MemoryStore};
/// use idempotent_mq::{Consumer, KeyFrom, MemoryQueue, Message, Messages};
///
/// async fn charge(order: Message<u64>) -> Result<(), &'static str> {
///     if order.body == 0 { Err("no such order") } else { Ok(()) }
/// }
///
/// #[tokio::main(flavor = "current_thread")]
/// async fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let queue = MemoryQueue::new("orders");
///     for body in ["17", "17", "18", "what?"] {
///         queue.send(body);
///     }
///     let executor = Executor::new(MemoryStore::new());
///     let handling = Messages::json().keyed(KeyFrom::body("order", |order: &u64| order.to_string())).run(charge);
///     let consumer = Consumer::builder(queue.source(), "billing", &executor).build(handling)?;
///     let counts = consumer.run(queue.drained()).await?; // stops once each message is settled
///     assert_eq!((executor.counts().of("ran"), counts.acked, counts.dead_lettered), (2, 3, 1));
///     assert_eq!(queue.dead_letters()[0].0.body, b"what?");
///     Ok(())
/// }
/// ```
#[derive(Clone)]
pub struct MemoryQueue {
    shared: Arc<Shared>,
    clock: Arc<dyn Clock>,
}

struct Shared {
    name: Arc<str>,
    messages: Mutex<Messages>,
    changed: Notify,
}

impl Shared {
    fn messages(&self) -> MutexGuard<'_, Messages> {
        // Each method leaves the messages consistent.
        self.messages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MemoryQueue {
    /// Creates an empty queue.
    #[must_use]
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        let shared = Shared { name: name.into(), messages: Mutex::default(), changed: Notify::new() };
        Self { shared: Arc::new(shared), clock: Arc::new(SystemClock::new()) }
    }

    /// Sets the clock of the delays, such as the virtual clock of a test. Clones made earlier keep their clock.
    ///
    /// # Default
    /// [`SystemClock`]
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Adds a message with this body. The message gets an id of its own.
    pub fn send(&self, body: impl Into<Vec<u8>>) {
        self.add(Duration::ZERO, |position, number| {
            Delivery::new(position, body.into()).id(format!("{}-{number}", self.shared.name))
        });
    }

    /// Adds a message with an id, headers or other fields that a test needs. The queue sets only its
    /// [`position`](Delivery::position), and counts its deliveries.
    pub fn send_delivery(&self, delivery: Delivery) {
        self.add(Duration::ZERO, |position, _| Delivery { position, ..delivery });
    }

    /// Creates a consumer's connection to the queue.
    #[must_use]
    pub fn source(&self) -> MemorySource {
        MemorySource::new(self.clone())
    }

    /// Returns the number of messages that are neither acknowledged nor dead-lettered: waiting, delayed, or with a consumer.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.shared.messages().pending()
    }

    /// Returns a future that ends once no message is [pending](Self::pending), to stop a consumer in a test.
    ///
    /// # Cancellation
    /// The future only waits.
    pub fn drained(&self) -> impl Future<Output = ()> + Send + 'static {
        let shared = self.shared.clone();
        async move {
            loop {
                let changed = shared.changed.notified();
                if shared.messages().pending() == 0 {
                    return;
                }
                changed.await;
            }
        }
    }

    /// Returns copies of the dead letters, from the oldest on.
    #[must_use]
    pub fn dead_letters(&self) -> Vec<(Delivery, DeadLetter)> {
        self.shared.messages().dead_letters().cloned().collect()
    }

    /// Makes all messages that consumers hold available again, like a broker whose connections were cut. The consumers
    /// can no longer settle them.
    pub fn redeliver(&self) {
        self.change(Messages::redeliver);
    }

    /// Adds a message that is due after this time. The function gets the position and the number of the message.
    fn add(&self, wait: Duration, delivery: impl FnOnce(Position, u64) -> Delivery) {
        let (name, due) = (self.shared.name.clone(), self.clock.now() + wait.min(LONGEST));
        self.change(|messages| {
            messages.add(due, |number| delivery(Position::of(name).partition(0).offset(number), number));
        });
    }

    fn change<T>(&self, change: impl FnOnce(&mut Messages) -> T) -> T {
        let changed = change(&mut self.shared.messages());
        self.shared.changed.notify_waiters();
        changed
    }
}

/// Shows the name and the numbers of messages, but no message.
impl fmt::Debug for MemoryQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let messages = self.shared.messages();
        f.debug_struct("MemoryQueue")
            .field("name", &self.shared.name)
            .field("pending", &messages.pending())
            .field("dead_letters", &messages.dead_letters().len())
            .finish_non_exhaustive()
    }
}
