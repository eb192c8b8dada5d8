//! Pull requests, which keep as many messages on their way as the consumer has room for.
use std::collections::VecDeque;
use std::time::Duration;

use async_nats::jetstream::consumer::PullConsumer;
use async_nats::jetstream::consumer::pull::BatchConfig;
use async_nats::{HeaderMap, Message, StatusCode, Subject, Subscriber};
use futures_util::{FutureExt, StreamExt};
use idempotent_mq::SourceError;
use tokio::time::timeout;

use crate::connection::Connection;
use crate::error::{fatal, transient};

/// The time after which the server ends a pull request without messages.
const EXPIRES: Duration = Duration::from_secs(30);
/// The interval at which the server shows that a pull request is alive.
const HEARTBEAT: Duration = Duration::from_secs(5);

/// The pull requests of one consumer, whose messages arrive in one inbox.
#[derive(Debug)]
pub(crate) struct Pulls {
    connection: Connection,
    consumer: PullConsumer,
    inbox: Subject,
    subscriber: Subscriber,
    /// The number of messages that the server may still send.
    requested: usize,
    /// Messages that arrived in a call that was dropped.
    arrived: VecDeque<Message>,
}

/// The meaning of a message in the inbox.
enum Arrival {
    Message(Message),
    /// A pull request has ended with this many messages missing.
    Ended(usize),
    /// All pull requests have ended, because the server has changed.
    AllEnded,
    Heartbeat,
    Failed(SourceError),
}

impl Pulls {
    pub(crate) async fn new(connection: Connection, consumer: PullConsumer) -> Result<Self, SourceError> {
        let inbox = Subject::from(connection.client.new_inbox());
        let subscribed = connection.client.subscribe(inbox.clone()).await;
        let subscriber = subscribed.map_err(|error| transient("subscribing", error))?;
        Ok(Self { connection, consumer, inbox, subscriber, requested: 0, arrived: VecDeque::new() })
    }

    /// Waits for messages, and returns at most `room` of them. Returns none after a change of the connection.
    ///
    /// # Errors
    /// The consumer is gone, or the server rejects a pull request. The next call returns the messages that have arrived.
    ///
    /// # Cancellation
    /// The next call returns the messages that have arrived.
    pub(crate) async fn next(&mut self, room: usize) -> Result<Vec<Message>, SourceError> {
        self.request(room).await?;
        if self.arrived.is_empty() && !self.wait().await? {
            return Ok(Vec::new());
        }
        while self.arrived.len() < room {
            let Some(Some(message)) = self.subscriber.next().now_or_never() else { break };
            self.arrive(message)?;
        }
        Ok(self.arrived.drain(..room.min(self.arrived.len())).collect())
    }

    /// Requests messages until `room` of them are on their way. Requests small numbers together.
    async fn request(&mut self, room: usize) -> Result<(), SourceError> {
        if self.connection.losses.has_changed().unwrap_or(false) {
            self.connection.losses.mark_unchanged();
            self.requested = 0;
        }
        let on_the_way = self.requested + self.arrived.len();
        if on_the_way > room / 2 {
            return Ok(());
        }
        let batch = BatchConfig {
            batch: room - on_the_way,
            expires: Some(EXPIRES),
            idle_heartbeat: HEARTBEAT,
            ..BatchConfig::default()
        };
        self.requested += batch.batch;
        let asked = self.consumer.request_batch(batch, self.inbox.clone()).await;
        asked.map_err(|error| transient("requesting messages", error))
    }

    /// Waits for one message. Returns false if the connection changed, or the pull requests ended.
    async fn wait(&mut self) -> Result<bool, SourceError> {
        while self.arrived.is_empty() && self.requested > 0 {
            tokio::select! {
                biased;
                next = timeout(HEARTBEAT * 2, self.subscriber.next()) => match next {
                    Ok(Some(message)) => self.arrive(message)?,
                    Ok(None) => return Err(fatal("receiving", "the connection is closed")),
                    // The server has forgotten the request, or the connection is half open.
                    Err(_) => self.requested = 0,
                },
                // An error means that the client has ended, which the subscription reports, too.
                _ = self.connection.losses.changed() => self.requested = 0,
            }
        }
        Ok(!self.arrived.is_empty())
    }

    fn arrive(&mut self, message: Message) -> Result<(), SourceError> {
        match arrival(message) {
            Arrival::Message(message) => {
                self.requested = self.requested.saturating_sub(1);
                self.arrived.push_back(message);
            }
            Arrival::Ended(missing) => self.requested = self.requested.saturating_sub(missing),
            Arrival::AllEnded => self.requested = 0,
            Arrival::Heartbeat => {}
            Arrival::Failed(error) => {
                self.requested = 0;
                return Err(error);
            }
        }
        Ok(())
    }

    /// Ends the subscription, and returns the messages that have arrived.
    pub(crate) async fn close(&mut self) -> Vec<Message> {
        // The server then forgets the pull requests, and the subscription ends after the messages that are on their way.
        if self.subscriber.drain().await.is_err() {
            return self.arrived.drain(..).collect();
        }
        while let Some(message) = self.subscriber.next().await {
            let _ = self.arrive(message);
        }
        self.arrived.drain(..).collect()
    }
}

fn arrival(message: Message) -> Arrival {
    let about = message.description.as_deref().unwrap_or_default();
    match message.status {
        None | Some(StatusCode::OK) => Arrival::Message(message),
        Some(StatusCode::IDLE_HEARTBEAT) => Arrival::Heartbeat,
        Some(StatusCode::TIMEOUT | StatusCode::NOT_FOUND) => Arrival::Ended(missing(message.headers.as_ref())),
        Some(StatusCode::NO_RESPONDERS) => Arrival::Failed(no_consumer()),
        // 409: the same status for ends of one request, changes of the server, and refusals.
        Some(status) => {
            let about = about.to_ascii_lowercase();
            if about.contains("deleted") || about.contains("push based") {
                Arrival::Failed(fatal(
                    "receiving",
                    "the consumer was deleted, or is a push consumer; create a pull consumer",
                ))
            } else if about.contains("leadership change") || about.contains("shutdown") {
                Arrival::AllEnded
            } else if about.contains("batch completed") || about.contains("message size") {
                Arrival::Ended(missing(message.headers.as_ref()))
            } else {
                let text = std::io::Error::other(format!("status {status}: {about}"));
                Arrival::Failed(transient("receiving", text))
            }
        }
    }
}

fn no_consumer() -> SourceError {
    let text = "no answer to a pull request; is JetStream enabled, and do the stream and the consumer exist?";
    transient("receiving", std::io::Error::other(text))
}

/// Returns the number of messages that an ended pull request was short of.
fn missing(headers: Option<&HeaderMap>) -> usize {
    let pending = headers.and_then(|headers| headers.get("Nats-Pending-Messages"));
    pending.and_then(|pending| pending.as_str().parse().ok()).unwrap_or(usize::MAX)
}
