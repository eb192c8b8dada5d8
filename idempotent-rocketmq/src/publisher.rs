//! A publisher that says what it knows.
mod attempt;
mod error;
mod outbox;

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use idempotent_core::__private::backoff::delay;
use idempotent_core::{Entropy, OsEntropy};
use rocketmq_client_rust::ClientError;
use tokio::sync::{Mutex, oneshot};
use tokio::time::Instant;
use tracing::warn;

pub use self::error::{PublishError, PublishErrorKind};
use crate::client::{Sender, live};
use crate::queues::{Choice, Place};
use crate::settings::{check_name, check_servers};
use crate::{RocketMessage, SettingError};

/// Publishes messages and waits until the broker has stored them. Cheap to clone; clones share one client, which is
/// made when it is first needed.
///
/// A message whose answer stays out is sent again under the same id, so it may be in its topic several times: consumers
/// tell its copies by that id.
///
/// ```no_run
/// use idempotent_rocketmq::{RocketMessage, PublishErrorKind, RocketPublisher};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let publisher = RocketPublisher::builder("localhost:9876").build()?;
/// match publisher.publish("payments", &RocketMessage::new("payment-17", r#"{"order":17}"#).tag("paid")).await {
///     Ok(()) => println!("stored"),
///     Err(error) if error.kind() == PublishErrorKind::Unconfirmed => println!("nobody knows: send it again, same id"),
///     Err(error) => println!("not in the topic: {error}"),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct RocketPublisher(Arc<Inner>);

struct Inner {
    name_servers: String,
    group: String,
    give_up_after: Duration,
    client: Mutex<Option<Client>>,
    /// Topics that were there, or that the broker would make; whether that needs not be asked again.
    known: std::sync::Mutex<HashMap<String, bool>>,
    /// Of who asks whether a topic is there.
    asking: Mutex<()>,
    /// Of messages that may go to any queue.
    turn: AtomicUsize,
}

/// Ends with its value.
struct Client {
    sender: Arc<Sender>,
    _end: oneshot::Sender<()>,
}

/// Sets up a [`RocketPublisher`].
#[derive(Clone, Debug)]
#[must_use]
pub struct RocketPublisherBuilder {
    name_servers: String,
    group: String,
    give_up_after: Duration,
}

/// So that the end of any try is a time.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 60 * 60);
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

impl RocketPublisherBuilder {
    /// The group of producers, as the broker's tools show it.
    ///
    /// # Default
    /// `idempotent`
    pub fn group(mut self, group: impl Into<String>) -> Self {
        self.group = group.into();
        self
    }

    /// How long [`publish`](RocketPublisher::publish) goes on trying, and how long all messages of a call by
    /// [`Publish`](idempotent_mq::Publish) may take together. A try takes up to 4 s.
    ///
    /// # Default
    /// 30 s; a year at most
    pub fn give_up_after(mut self, time: Duration) -> Self {
        self.give_up_after = time.min(LONGEST);
        self
    }

    /// The publisher.
    ///
    /// # Errors
    /// Name servers or a group that cannot be.
    pub fn build(self) -> Result<RocketPublisher, SettingError> {
        let Self { name_servers, group, give_up_after } = self;
        check_servers(&name_servers)?;
        check_name("group", &group)?;
        let (client, known, asking, turn) = Default::default();
        Ok(RocketPublisher(Arc::new(Inner { name_servers, group, give_up_after, client, known, asking, turn })))
    }
}

impl RocketPublisher {
    /// A publisher by these name servers: `HOST:PORT`, several of them `HOST:PORT;HOST:PORT`.
    pub fn builder(name_servers: impl Into<String>) -> RocketPublisherBuilder {
        let give_up_after = Duration::from_secs(30);
        RocketPublisherBuilder { name_servers: name_servers.into(), group: "idempotent".to_owned(), give_up_after }
    }

    /// Publishes, and returns once the broker says that it has stored the message as its settings want it: on disk, and
    /// on a replica, where they say so. Sends it again, under the same id and after growing pauses, while the broker is
    /// away, does not answer or has not stored it so.
    ///
    /// # Errors
    /// By [`kind`](PublishError::kind), the message is not in the topic, or nobody knows.
    ///
    /// # Cancellation
    /// Nobody knows whether it was published.
    pub async fn publish(&self, topic: &str, message: &RocketMessage) -> Result<(), PublishError> {
        let end = Instant::now() + self.0.give_up_after;
        self.publish_by(end, topic, message, None).await.map(drop)
    }

    /// Until then. To the queue of this name, where it has one; and says where the message lies.
    async fn publish_by(
        &self,
        end: Instant,
        topic: &str,
        message: &RocketMessage,
        queue: Option<&str>,
    ) -> Result<Option<Place>, PublishError> {
        let refused = |mistake: SettingError| PublishError::new(PublishErrorKind::Refused, mistake.to_string(), None);
        let outbound = message.outbound(topic).map_err(refused)?;
        let mut unsure = false;
        for tries in 1.. {
            let to = match queue {
                Some(name) => Choice::Of(name.to_owned()),
                None => Choice::Any(self.0.turn.fetch_add(1, Relaxed)),
            };
            let failed = match self.0.attempt(outbound.clone(), to, end).await {
                Ok(place) => return Ok(place),
                Err(failed) => failed,
            };
            unsure |= failed.unsure;
            // Without randomness there is no jitter.
            let pause = delay(FIRST_PAUSE, LONGEST_PAUSE, tries - 1, 20, OsEntropy.bits().unwrap_or_default());
            if failed.is_final || Instant::now() + pause >= end {
                return Err(failed.told(unsure));
            }
            let cause = &*failed.text;
            warn!(target: "idempotent", topic, tries, ?pause, cause, "publishing failed");
            tokio::time::sleep(pause).await;
        }
        Err(PublishError::new(PublishErrorKind::Unconfirmed, "given up", None))
    }
}

impl Inner {
    fn knows(&self, topic: &str) -> bool {
        self.known().get(topic) == Some(&true)
    }

    fn known(&self) -> MutexGuard<'_, HashMap<String, bool>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nobody else makes a second one meanwhile.
    async fn sender(&self) -> Result<Arc<Sender>, ClientError> {
        let mut client = self.client.lock().await;
        if let Some(client) = &*client {
            return Ok(client.sender.clone());
        }
        let ((ready, started), (end, ended)) = (oneshot::channel(), oneshot::channel());
        let (name_servers, group) = (self.name_servers.clone(), self.group.clone());
        live(0, move |runtime| async move {
            match Sender::start(&runtime, &name_servers, &group).await {
                Ok(sender) => {
                    let sender = Arc::new(sender);
                    if ready.send(Ok(sender.clone())).is_ok() {
                        // Nothing is ever sent: its other end is dropped.
                        let _: Result<(), _> = ended.await;
                    }
                    sender.end().await;
                }
                Err(error) => drop(ready.send(Err(error))),
            }
        });
        let sender = started.await.unwrap_or_else(|_| Err(ClientError::not_started()))?;
        Ok(client.insert(Client { sender, _end: end }).sender.clone())
    }
}

impl fmt::Debug for RocketPublisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RocketPublisher").field("name_servers", &self.0.name_servers).finish_non_exhaustive()
    }
}
