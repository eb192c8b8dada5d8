//! Pull requests, which keep as many messages on their way as the consumer has room for.
use std::collections::VecDeque;
use std::time::Duration;

use async_nats::jetstream::consumer::PullConsumer;
use async_nats::jetstream::consumer::pull::BatchConfig;
use async_nats::{HeaderMap, Message, StatusCode, Subject, Subscriber};
use futures_util::{FutureExt, StreamExt};
use idempotent_mq::SourceError;
use tokio::time::{Instant, timeout};

use crate::connection::Connection;
use crate::error::{fatal, transient};

/// The time after which the server ends a pull request without messages.
const EXPIRES: Duration = Duration::from_secs(30);
/// The interval at which the server shows that a pull request is alive.
const HEARTBEAT: Duration = Duration::from_secs(5);

/// The minimum time for which a lost connection counts. The server delivers a message that was lost with it again after `ack_wait`.
const MEMORY: Duration = Duration::from_secs(60);

/// The pull requests of one consumer, whose messages arrive in one inbox.
///
/// A client that cannot represent a message ends its connection, and the messages after that one are lost with it until `ack_wait`
/// ends. After repeated losses, each request is for one message, so that others arrive.
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
    pub(crate) losses: Losses,
}

/// The connections that were lost while messages were on their way.
#[derive(Debug)]
pub(crate) struct Losses {
    /// The time after which an earlier loss no longer counts. The server delivers the same messages again several times until then.
    memory: Duration,
    in_a_row: u32,
    last: Option<Instant>,
    /// True until [`Pulls::suspicion`] has reported the last loss.
    is_new: bool,
    /// True after the client itself has ended.
    has_ended: bool,
}

/// The reason to search for a message that the client cannot represent.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Suspicion {
    /// The connection was lost this often.
    Lost(u32),
    /// The client has ended.
    Ended,
}

impl Losses {
    /// Counts a lost connection on which this number of messages could arrive.
    fn add(&mut self, requested: usize) {
        if requested > 0 {
            self.in_a_row = if self.is_recent() { self.in_a_row.saturating_add(1) } else { 1 };
            (self.last, self.is_new) = (Some(Instant::now()), true);
        }
    }

    /// Forgets the lost connections, because their cause is gone.
    pub(crate) fn forget(&mut self) {
        self.in_a_row = 0;
    }

    fn is_recent(&self) -> bool {
        self.last.is_some_and(|last| last.elapsed() < self.memory)
    }

    /// Returns whether one loss followed another. A single one is a fault of the network.
    fn are_suspicious(&self) -> bool {
        self.in_a_row > 1 && self.is_recent()
    }
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
        let memory = MEMORY.max(consumer.cached_info().config.ack_wait * 4);
        let losses = Losses { memory, in_a_row: 0, last: None, is_new: false, has_ended: false };
        let inbox = Subject::from(connection.client.new_inbox());
        let subscribed = connection.client.subscribe(inbox.clone()).await;
        let subscriber = subscribed.map_err(|error| transient("subscribing", error))?;
        Ok(Self { connection, consumer, inbox, subscriber, requested: 0, arrived: VecDeque::new(), losses })
    }

    /// Returns a reason to search for a message that the client cannot represent, once for each loss of the connection.
    pub(crate) fn suspicion(&mut self) -> Option<Suspicion> {
        let is_new = std::mem::take(&mut self.losses.is_new);
        match self.losses.has_ended {
            true => Some(Suspicion::Ended),
            false => (is_new && self.losses.are_suspicious()).then_some(Suspicion::Lost(self.losses.in_a_row)),
        }
    }

    /// Counts a lost connection. The server forgets its pull requests, unless the client is back before it notices.
    fn lose(&mut self) {
        self.losses.add(std::mem::take(&mut self.requested));
    }

    /// Waits for messages, and returns at most `room` of them. May return none after a change of the connection.
    ///
    /// # Errors
    /// The consumer is gone, or the server rejects a pull request. The next call returns the messages that have arrived.
    ///
    /// # Cancellation
    /// The next call returns the messages that have arrived.
    pub(crate) async fn next(&mut self, room: usize) -> Result<Vec<Message>, SourceError> {
        self.request(room).await?;
        self.wait().await?;
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
            self.lose();
        }
        let room = if self.losses.are_suspicious() { 1 } else { room };
        let Some(batch) = pull(room, self.requested, self.arrived.len()) else { return Ok(()) };
        self.requested += batch.batch;
        let asked = self.consumer.request_batch(batch, self.inbox.clone()).await;
        asked.map_err(|error| transient("requesting messages", error))
    }

    /// Waits for one message, unless some have arrived. Returns early if the connection changed, or the pull requests ended.
    async fn wait(&mut self) -> Result<(), SourceError> {
        while self.arrived.is_empty() && self.requested > 0 {
            tokio::select! {
                biased;
                next = timeout(HEARTBEAT * 2, self.subscriber.next()) => match next {
                    Ok(Some(message)) => self.arrive(message)?,
                    Ok(None) => {
                        self.losses.has_ended = true;
                        return Ok(());
                    }
                    // The server has forgotten the request, or the connection is half open.
                    Err(_) => self.requested = 0,
                },
                // An error means that the client has ended, which the subscription reports, too.
                _ = self.connection.losses.changed() => self.lose(),
            }
        }
        Ok(())
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

/// Returns the request that fills the room for messages. Returns `None` while more than half is filled.
fn pull(room: usize, requested: usize, arrived: usize) -> Option<BatchConfig> {
    let on_the_way = requested + arrived;
    (on_the_way <= room / 2).then(|| BatchConfig {
        batch: room - on_the_way,
        expires: Some(EXPIRES),
        idle_heartbeat: HEARTBEAT,
        ..BatchConfig::default()
    })
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use async_nats::jetstream::{consumer::pull, stream};
    use idempotent_harness::servers::NatsServer;
    use idempotent_mq::SourceErrorKind;

    use super::*;

    #[tokio::test]
    async fn all_messages_that_have_arrived_are_taken_up_to_the_room() {
        let server = NatsServer::start();
        let connection = Connection::open(&server.url().into()).await.unwrap();
        let config =
            stream::Config { name: "ORDERS".into(), subjects: vec!["orders".into()], ..stream::Config::default() };
        let stream = connection.jetstream.create_stream(config).await.unwrap();
        let consumer = stream.create_consumer(pull::Config::default()).await.unwrap();
        let mut pulls = Pulls::new(connection, consumer).await.unwrap();
        pulls.requested = 4;
        let client = pulls.connection.client.clone();
        for _ in 0..4 {
            client.publish(pulls.inbox.clone(), "".into()).await.unwrap();
        }
        // The server answers after it has sent the messages over the same connection.
        client.request("nobody", "".into()).await.unwrap_err();
        let taken = pulls.next(3).await.unwrap().len();
        assert_eq!((taken, pulls.arrived.len(), pulls.requested), (3, 0, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn two_lost_connections_with_messages_on_their_way_are_suspicious_for_a_time() {
        let mut losses =
            Losses { memory: Duration::from_secs(60), in_a_row: 0, last: None, is_new: false, has_ended: false };
        losses.add(0);
        assert_eq!((losses.in_a_row, losses.is_new), (0, false));
        losses.add(1);
        assert!(losses.is_new && !losses.are_suspicious());
        tokio::time::advance(Duration::from_secs(59)).await;
        losses.add(8);
        assert!(losses.are_suspicious());
        tokio::time::advance(Duration::from_secs(60)).await;
        assert!(!losses.are_suspicious());
        losses.add(8);
        assert_eq!(losses.in_a_row, 1);
        losses.add(8);
        losses.forget();
        assert!(!losses.are_suspicious());
    }

    #[test]
    fn a_request_fills_the_room_when_half_of_it_is_free() {
        for (room, requested, arrived, expected) in [
            (10, 0, 0, Some(10)),
            (10, 3, 2, Some(5)),
            (10, 3, 3, None),
            (10, 0, 6, None),
            (1, 0, 0, Some(1)),
            (1, 1, 0, None),
        ] {
            let request = pull(room, requested, arrived);
            let batch = request.as_ref().map(|request| request.batch);
            assert_eq!(batch, expected, "{room} {requested} {arrived}");
            let times = request.map(|request| (request.expires, request.idle_heartbeat));
            assert_eq!(times, expected.map(|_| (Some(EXPIRES), HEARTBEAT)));
        }
    }

    #[test]
    fn a_status_ends_a_request_or_all_or_the_source() {
        let mut pending = HeaderMap::new();
        pending.insert("Nats-Pending-Messages", "3");
        let status = |status, about: &str, headers| {
            arrival(Message {
                subject: "_INBOX.1".into(),
                reply: None,
                payload: "".into(),
                headers,
                status: StatusCode::from_u16(status).ok(),
                description: Some(about.to_owned()),
                length: 0,
            })
        };
        for (code, about) in [
            (408, "Request Timeout"),
            (404, "No Messages"),
            (409, "Batch Completed"),
            (409, "Message Size Exceeds MaxBytes"),
        ] {
            assert!(matches!(status(code, about, Some(pending.clone())), Arrival::Ended(3)), "{about}");
            assert!(matches!(status(code, about, None), Arrival::Ended(usize::MAX)), "{about}");
        }
        for about in ["Leadership Change", "Server Shutdown"] {
            assert!(matches!(status(409, about, None), Arrival::AllEnded), "{about}");
        }
        for (code, about, kind) in [
            (409, "Consumer Deleted", SourceErrorKind::Fatal),
            (409, "Consumer is push based", SourceErrorKind::Fatal),
            (409, "Exceeded MaxWaiting", SourceErrorKind::Transient),
            (503, "", SourceErrorKind::Transient),
        ] {
            let arrived = status(code, about, None);
            assert!(matches!(arrived, Arrival::Failed(error) if error.kind() == kind), "{about}");
        }
        assert!(matches!(status(100, "Idle Heartbeat", None), Arrival::Heartbeat));
        assert!(matches!(status(200, "", None), Arrival::Message(_)));
    }
}
