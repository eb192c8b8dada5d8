//! The search for messages that the client cannot represent. It ends its connection when it receives one.
use std::time::Duration;

use async_nats::Subject;
use async_nats::jetstream::consumer;
use idempotent_core::{Clock, SystemClock};
use idempotent_mq::{DeadLetter, SourceError};
use tokio::time::Instant;

use crate::connection::Connection;
use crate::delayed::contains;
use crate::error::{fatal, transient, unanswered};
use crate::number::MessageNumber;
use crate::options::Server;
use crate::pulls::Suspicion;
use crate::raw_message::StoredMessage;
use crate::settler::{JetStreamSettler, JetStreamTag};

/// The time after which a search ends. The next one continues.
const SEARCH: Duration = Duration::from_secs(2);

/// The search among the messages of a consumer that are delivered and not acknowledged.
#[derive(Debug)]
pub(crate) struct UnreadableMessages {
    server: Server,
    consumer: String,
    /// The sequence number up to which each message was checked.
    checked: u64,
}

impl UnreadableMessages {
    pub(crate) fn new(server: Server, consumer: String) -> Self {
        Self { server, consumer, checked: 0 }
    }

    /// Searches, and dead-letters what is found. Returns the error to report, and whether messages were found.
    pub(crate) async fn search(&mut self, settler: &JetStreamSettler, suspicion: Suspicion) -> (SourceError, bool) {
        let (found, first) = match self.bury(settler).await {
            Ok(found) => found,
            Err(error) => return (concluded(suspicion, &format!("the search for its cause failed: {error}")), false),
        };
        let stream = &settler.stream;
        let text = match found[..] {
            [] => format!(
                "if the server and the network work, the client cannot represent the headers of a message; the first one that is \
                 not acknowledged is {first} of the stream `{stream}`: read it by `nats stream get {stream} {first}`, and remove \
                 it by `nats stream rmm {stream} {first}`"
            ),
            [..] => format!(
                "the client cannot represent the headers of the messages {found:?} of the stream `{stream}`; they are dead letters \
                 now, and a redrive encodes their headers"
            ),
        };
        (concluded(suspicion, &text), !found.is_empty())
    }

    /// Returns the sequence numbers of the messages that were found, and of the first one that is not acknowledged.
    async fn bury(&mut self, settler: &JetStreamSettler) -> Result<(Vec<u64>, u64), SourceError> {
        // The client of the settler may have ended.
        let connection = Connection::open(&self.server).await?;
        let settler = settler.over(connection);
        let state = self.state(&settler).await?;
        let (end, mut found) = (Instant::now() + SEARCH, Vec::new());
        self.checked = self.checked.max(state.ack_floor.stream_sequence);
        while Instant::now() < end {
            let doing = "reading a message of the stream";
            let read = StoredMessage::from(&settler.connection, &settler.stream, self.checked + 1, doing).await?;
            let Some(message) = read.filter(|message| message.number.sequence <= state.delivered.stream_sequence)
            else {
                break;
            };
            self.checked = message.number.sequence;
            if !message.is_representable && receives(&state.config, &message.subject) {
                self.bury_one(&settler, &message).await?;
                found.push(message.number.sequence);
            }
        }
        Ok((found, state.ack_floor.stream_sequence + 1))
    }

    async fn state(&self, settler: &JetStreamSettler) -> Result<consumer::Info, SourceError> {
        let doing = "reading the state of the consumer";
        let stream = settler.connection.jetstream.get_stream_no_info(&*settler.stream).await;
        let stream = stream.map_err(|error| unanswered(doing, error))?;
        stream.consumer_info(&self.consumer).await.map_err(|error| unanswered(doing, error))
    }

    async fn bury_one(&self, settler: &JetStreamSettler, message: &StoredMessage) -> Result<(), SourceError> {
        let (stream, number) = (&settler.stream, message.number);
        let delivery = message.delivery(&message.subject, || format!("{stream}/{number}"));
        let mut letter = DeadLetter::because(
            "the client cannot represent the headers, which are not UTF-8 or not `name: value`",
            SystemClock::new().wall(),
        );
        letter.deaths = delivery.deaths.saturating_add(1);
        let MessageNumber { sequence, stored_at } = number;
        // The server takes all but the sequence number from its own notes.
        let reply = format!("$JS.ACK.{stream}.{}.1.{sequence}.0.{stored_at}.0", self.consumer);
        settler.dead_letter(&delivery, &JetStreamTag::new(Subject::from(reply), number), &letter).await
    }
}

/// Returns whether a consumer receives messages with this subject.
fn receives(config: &consumer::Config, subject: &str) -> bool {
    let several = config.filter_subjects.iter().map(String::as_str);
    let mut filters = several.chain((!config.filter_subject.is_empty()).then_some(&*config.filter_subject)).peekable();
    filters.peek().is_none() || filters.any(|filter| contains(filter, subject))
}

/// Returns the error that reports a search.
fn concluded(suspicion: Suspicion, text: &str) -> SourceError {
    match suspicion {
        Suspicion::Lost(times) => {
            let text = format!("the connection was lost {times} times while messages were on their way; {text}");
            transient("receiving", std::io::Error::other(text))
        }
        Suspicion::Ended => fatal("receiving", &format!("the client has ended; {text}; start the consumer again")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_consumer_receives_the_subjects_of_its_filters_and_all_without_one() {
        let config = |one: &str, several: &[&str]| consumer::Config {
            filter_subject: one.to_owned(),
            filter_subjects: several.iter().map(|&filter| filter.to_owned()).collect(),
            ..consumer::Config::default()
        };
        for (one, several, expected) in [
            ("", &[][..], true),
            ("orders.*", &[], true),
            ("orders.old", &[], false),
            ("", &["orders.old", "orders.new"], true),
            ("", &["orders.old", "bills.>"], false),
        ] {
            assert_eq!(receives(&config(one, several), "orders.new"), expected, "{one} {several:?}");
        }
    }
}
