//! Messages of a stream in the form in which the server stores them, which the client need not represent.
use async_nats::HeaderMap;
use async_nats::jetstream::response::Response;
use async_nats::jetstream::stream::RawMessage;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use idempotent_mq::{Delivery, Headers, SourceError};
use serde::{Deserialize, Serialize};

use crate::carrier::{delivery, is_representable, parsed};
use crate::connection::Connection;
use crate::error::{jetstream_failure, transient, unanswered};
use crate::number::MessageNumber;

/// A message of a stream.
#[derive(Debug)]
pub(crate) struct StoredMessage {
    pub(crate) subject: String,
    pub(crate) number: MessageNumber,
    /// The headers that the client can represent.
    pub(crate) headers: HeaderMap,
    /// The other lines of the headers.
    others: Headers,
    pub(crate) body: Vec<u8>,
    /// True if the client can receive the message.
    pub(crate) is_representable: bool,
}

/// A request for the first message from a sequence number on.
#[derive(Serialize)]
struct StartingAt {
    seq: u64,
    next_by_subj: &'static str,
}

#[derive(Deserialize)]
struct Found {
    message: RawMessage,
}

impl StoredMessage {
    /// Reads the first message from a sequence number on. The answer is JSON with Base64.
    pub(crate) async fn from(
        connection: &Connection,
        stream: &str,
        sequence: u64,
        doing: &str,
    ) -> Result<Option<Self>, SourceError> {
        let request = StartingAt { seq: sequence, next_by_subj: ">" };
        let answer = connection.jetstream.request(format!("STREAM.MSG.GET.{stream}"), &request).await;
        Self::found(answer.map_err(|error| unanswered(doing, error))?, doing)
    }

    /// Returns the message of an answer, or `None` if the stream has none.
    fn found(answer: Response<Found>, doing: &str) -> Result<Option<Self>, SourceError> {
        match answer {
            Response::Ok(Found { message }) => Self::decode(message).map(Some).map_err(|error| transient(doing, error)),
            Response::Err { error } if error.code() == 404 => Ok(None),
            Response::Err { error } => Err(jetstream_failure(doing, &error)),
        }
    }

    fn decode(message: RawMessage) -> Result<Self, base64::DecodeError> {
        let stored = STANDARD.decode(message.headers.unwrap_or_default())?;
        let (headers, others) = parsed(&stored);
        Ok(Self {
            subject: message.subject,
            number: MessageNumber { sequence: message.sequence, stored_at: message.time.unix_timestamp_nanos() },
            headers,
            others,
            body: STANDARD.decode(message.payload)?,
            is_representable: stored.is_empty() || is_representable(&stored),
        })
    }

    /// Returns the delivery of the message, under this subject. `origin` is the id of a message whose producer set none.
    pub(crate) fn delivery(&self, subject: &str, origin: impl FnOnce() -> String) -> Delivery {
        let headers = Some(&self.headers);
        let mut delivery = delivery(subject, self.number.sequence, headers, self.body.clone(), origin);
        self.others.iter().for_each(|(name, value)| delivery.headers.push(name, value));
        delivery
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::answered;

    #[test]
    fn a_missing_message_is_no_error_and_another_refusal_is_one() {
        let refused = |code, err_code, text| {
            StoredMessage::found(Response::Err { error: answered(code, err_code, text) }, "reading")
        };
        assert!(matches!(refused(404, 10_037, "no message found"), Ok(None)));
        assert!(refused(503, 10_008, "JetStream system temporarily unavailable").is_err());
    }
}
