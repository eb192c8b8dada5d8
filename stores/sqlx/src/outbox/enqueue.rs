//! Writing messages in the caller's transaction.
use std::borrow::Cow;
use std::collections::HashMap;

use idempotent_mq::{OUTBOX_HEADER, OutboundMessage};
use sqlx::Database;

use super::database::{OutboxDb, SqlValue};
use super::digest::{digest, pack};
use super::nonce::nonce;
use super::{Outbox, OutboxError, OutboxErrorKind, delivery_time};

/// The result of [`Outbox::enqueue`]. Complete by definition: the message is new, or known.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Enqueued {
    /// The message was written. A relay sends it once the transaction has committed.
    New,
    /// The outbox already contains the same message with the same id, sent or not. The existing one is unchanged.
    Already,
}

/// The maximum number of messages in one statement: databases limit the number of arguments.
const MAX_ROWS: usize = 1_000;
/// The maximum length of an id, topic, business key and aggregate, in bytes: the limit of an index in each database.
const LONGEST: usize = 255;
/// The maximum size of headers and body together, in bytes.
const LARGEST: usize = 64 << 20;

impl<Db: OutboxDb> Outbox<Db> {
    /// Writes a message in your transaction with one statement. The message is sent if the transaction commits.
    /// Choose the id once, when the message is created: it stays the same for every send.
    ///
    /// Writing the same message again changes nothing. Messages of one [aggregate](OutboundMessage::aggregate) are
    /// sent in the order in which they were written. Two concurrent transactions that write to the same aggregate
    /// have no defined order, unless they exclude each other, for example by locking the aggregate's row.
    ///
    /// A message with [`deliver_at`](OutboundMessage::deliver_at) is sent at once as well, and the broker keeps it
    /// until then. A relay whose publisher [cannot delay](idempotent_mq::Publish::delays) refuses the message, and
    /// raises an alert once the message is given up. The delivery time is not part of the content: if the same
    /// message is written again with another time, the first time is kept. The message counts as lost, and is resent,
    /// only some time [after](super::ResendPolicy::backoff) its delivery time.
    ///
    /// The [trace context](idempotent_mq::TRACE_HEADERS) is not part of the content either. If the same message is written again in
    /// another trace, the first trace context is kept, and the relay sends it.
    ///
    /// The outbox sets the header [`OUTBOX_HEADER`], and replaces one that the message already has.
    ///
    /// # Errors
    /// [`Conflict`](OutboxErrorKind::Conflict): the outbox contains another message with this id.
    /// [`Invalid`](OutboxErrorKind::Invalid): the id or topic is empty, or a part is too long.
    /// [`Database`](OutboxErrorKind::Database): roll back and retry.
    ///
    /// # Cancellation
    /// The message may or may not be written: roll back.
    pub async fn enqueue(
        &self,
        connection: &mut <Db as Database>::Connection,
        message: &OutboundMessage,
    ) -> Result<Enqueued, OutboxError> {
        let new = self.enqueue_all(connection, std::slice::from_ref(message)).await?;
        Ok(if new > 0 { Enqueued::New } else { Enqueued::Already })
    }

    /// Writes several messages, with one statement per 1,000, and returns the number of new ones.
    ///
    /// # Errors
    /// Same as [`enqueue`](Self::enqueue). Roll back after an error: some messages may be written.
    ///
    /// # Cancellation
    /// Same as [`enqueue`](Self::enqueue).
    pub async fn enqueue_all(
        &self,
        connection: &mut <Db as Database>::Connection,
        messages: &[OutboundMessage],
    ) -> Result<u64, OutboxError> {
        let mut digests: HashMap<&[u8], [u8; 32]> = HashMap::with_capacity(messages.len());
        let mut different = Vec::with_capacity(messages.len());
        for message in messages {
            check(message)?;
            let own = without_nonce(message);
            let sum = digest(&own);
            match digests.insert(message.id.as_bytes(), sum) {
                None => different.push((own, sum)),
                Some(known) if known == sum => {}
                Some(_) => return Err(conflict()),
            }
        }
        let mut new = 0;
        for part in different.chunks(MAX_ROWS) {
            new += self.write(connection, part).await?;
        }
        // The transaction has not committed yet: the relays look several times within a short period.
        self.0.written.notify_waiters();
        self.0.written.notify_one();
        Ok(new)
    }

    async fn write(
        &self,
        connection: &mut <Db as Database>::Connection,
        messages: &[(Cow<'_, OutboundMessage>, [u8; 32])],
    ) -> Result<u64, OutboxError> {
        let mut args = Vec::with_capacity(messages.len() * 11);
        for (message, sum) in messages {
            let optional = |text: &Option<String>| SqlValue::from(text.as_ref().map(|text| text.as_bytes()));
            args.extend([
                SqlValue::from(message.id.as_bytes()),
                SqlValue::from(message.topic.as_bytes()),
                optional(&message.business_key),
                optional(&message.aggregate),
                SqlValue::Bytes(Some(pack(&delivery_time::stored(message)))),
                SqlValue::from(&*message.body),
                SqlValue::from(&sum[..]),
                SqlValue::from(&nonce()?[..]),
                self.now(),
                optional(&message.aggregate),
                self.now(),
            ]);
        }
        let rows = Db::execute(connection, self.0.statements.enqueue(messages.len()).into(), args).await?;
        if rows != messages.len() as u64 {
            self.compare(connection, messages).await?;
        }
        Ok(rows)
    }

    /// Compares the messages with those in the outbox, after fewer rows were written than expected. Only this check
    /// proves a duplicate, since a row can be missing for another reason.
    async fn compare(
        &self,
        connection: &mut <Db as Database>::Connection,
        messages: &[(Cow<'_, OutboundMessage>, [u8; 32])],
    ) -> Result<(), OutboxError> {
        let args = messages.iter().map(|(message, _)| SqlValue::from(message.id.as_bytes())).collect();
        let rows = Db::fetch(connection, self.0.statements.digests(messages.len()).into(), args, "bb").await?;
        let known: HashMap<_, _> = rows.into_iter().map(|mut row| (row.bytes(), row.bytes())).collect();
        for (message, sum) in messages {
            match known.get(message.id.as_bytes()) {
                Some(there) if there[..] == sum[..] => {}
                Some(_) => return Err(conflict()),
                None => {
                    return Err(OutboxError::new(
                        OutboxErrorKind::Database,
                        "the message was not written, and no message has this id: roll back, and retry",
                    ));
                }
            }
        }
        Ok(())
    }
}

fn conflict() -> OutboxError {
    OutboxError::new(
        OutboxErrorKind::Conflict,
        "there is another message of this id in the outbox: give each message an id of its own, and the same message the \
         same id and content",
    )
}

/// Returns the message without the nonce of another message, from which a handler may have copied the headers.
fn without_nonce(message: &OutboundMessage) -> Cow<'_, OutboundMessage> {
    let mut message = Cow::Borrowed(message);
    if message.headers.first(OUTBOX_HEADER).is_some() {
        message.to_mut().headers.remove(OUTBOX_HEADER);
    }
    message
}

fn check(message: &OutboundMessage) -> Result<(), OutboxError> {
    let invalid = |what: String| Err(OutboxError::new(OutboxErrorKind::Invalid, what));
    let parts = [
        ("id", Some(&message.id)),
        ("topic", Some(&message.topic)),
        ("business key", message.business_key.as_ref()),
        ("aggregate", message.aggregate.as_ref()),
    ];
    for (what, part) in parts {
        match part.map(String::len) {
            Some(0) => {
                return invalid(format!(
                    "the message's {what} is empty: set a value, or omit the field if it is optional"
                ));
            }
            Some(bytes) if bytes > LONGEST => {
                return invalid(format!(
                    "the message's {what} has {bytes} bytes, the limit is {LONGEST}: hash a longer value"
                ));
            }
            _ => {}
        }
    }
    let headers: usize = message.headers.iter().map(|(name, value)| name.len() + value.len() + 8).sum();
    let bytes = headers.saturating_add(message.body.len());
    if bytes > LARGEST {
        return invalid(format!(
            "the message has {bytes} bytes, the limit is {LARGEST}: store the payload elsewhere, and send a reference to it"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_of_a_message_is_that_of_its_body_and_headers_with_8_bytes_each() {
        let of = |bytes| OutboundMessage::new("orders", "a", vec![0; bytes]).header("ab", "text");
        assert!(check(&of(LARGEST - 14)).is_ok());
        let refused = check(&of(LARGEST - 13)).map_err(|error| error.to_string());
        assert!(refused.is_err_and(|text| text.starts_with("the message has 67108865 bytes")));
    }
}
